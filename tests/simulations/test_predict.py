"""A served model answers raw rows, with this package and without it."""

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfl_flower.analysis.saved import load_run
from simulations import assign
from simulations.export import export
from simulations.predict import main
from simulations.rows import read_rows, to_inputs
from simulations.served import CARD, read_json
from tests.conftest import Runner

CITIES = ["Bern", "K\u00f6ln | <b>", "\u0141\u00f3d\u017a, Nowe"]
"""Names as sites write them."""

TABLE = ["dataset=csv", "dataset.label=outcome", "dataset.owner=site", "model=mlp"]
SITES = ["partition=natural", "drift=none", "clients=4", "participants=4", "clusters=2"]


def make_rows(count: int = 240) -> pd.DataFrame:
    """Return rows whose labels are the other way round at two of four sites."""
    rng = np.random.default_rng(0)
    age = rng.normal(50, 15, count).round(1)
    city = rng.choice(CITIES, count)
    site = rng.integers(0, 4, count)
    score = np.where(site < 2, age - 50, 50 - age) + 10 * (city == "Bern")
    return pd.DataFrame(
        {
            "age": age,
            "city": city,
            "dose": np.where(rng.random(count) < 0.1, np.nan, age * 10 + 1),
            "site": [f"s{each}" for each in site],
            "outcome": np.where(score > 0, "yes", "no"),
        }
    )


@pytest.fixture(scope="module")
def exported(undisturbed: Runner, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a csv of four sites, a run on it, and what is exported."""
    folder = tmp_path_factory.mktemp("predict")
    make_rows().to_csv(folder / "data.csv", index=False)
    where = [f"data_dir={folder}", "dataset.missing=mean", "strategy=ifca"]
    run = undisturbed(*where, *TABLE, *SITES, "strategy.local.epochs=5")
    shutil.copytree(run.folder, folder / "run")
    export(run.folder, folder / "served", licence="CC-BY-4.0")
    return folder


@pytest.fixture
def served(exported: Path, tmp_path: Path) -> Path:
    """Return a copy of what is exported, beside one of the rest."""
    shutil.copytree(exported, tmp_path, dirs_exist_ok=True)
    return tmp_path / "served"


def ask(capsys: Any, *arguments: object) -> tuple[pd.DataFrame, str]:
    """Return the answers of `predict`, and what it notes."""
    assert main([*map(str, arguments)]) == 0
    said = capsys.readouterr()
    return pd.read_csv(io.StringIO(said.out)), said.err


def require_refusal(capsys: Any, words: str, *arguments: object) -> None:
    assert main([*map(str, arguments)]) == 2
    complaint = capsys.readouterr().err
    assert words in complaint
    assert complaint.count("\n") == 1


def test_rows_become_the_inputs_that_the_run_trained_on(served, tmp_path):
    card = read_json(served / "cluster-0" / CARD)
    assert [each["column"] for each in card["inputs"]] == ["age", *["city"] * 3, "dose"]
    inputs, notes = to_inputs(card, read_rows(card, tmp_path / "data.csv"))
    (dataset,) = load_run(tmp_path / "run").build("dataset")
    # What the clients of the run agreed on.
    pools = replace(dataset, agreed=card["inputs"]).load(str(tmp_path))
    trained = np.concatenate([pool.x.numpy() for pool in pools])
    ours, theirs = (each[np.lexsort(each.T)] for each in (inputs, trained))
    assert np.array_equal(ours, theirs)
    assert not notes


def test_the_answers_are_those_of_the_sites(served, tmp_path, capsys):
    rows = make_rows()
    own = rows[rows["site"] == "s0"]
    own.to_csv(tmp_path / "own.csv", index=False)
    assert assign.main([str(served), "--data-dir", str(tmp_path / "own.csv")]) == 0
    folder = capsys.readouterr().out.split(": ")[1].strip()
    # Nothing is read but the folder and the file.
    moved = shutil.copytree(folder, tmp_path / "elsewhere")
    shutil.rmtree(served)
    shutil.rmtree(tmp_path / "run")
    found, notes = ask(capsys, moved, tmp_path / "own.csv")
    assert notes == ""
    assert found["row"].tolist() == [*range(1, len(own) + 1)]
    assert (found["answer"].to_numpy() == own["outcome"].to_numpy()).mean() > 0.85
    assert found["probability"].between(0.5, 1).all()
    # Another order, other columns beside, no labels, and another form.
    other = own[["dose", "site", "city", "age"]].assign(more="x")
    other.to_csv(tmp_path / "other.csv", index=False)
    other.to_parquet(tmp_path / "other.parquet")
    for name in ("other.csv", "other.parquet"):
        again, _ = ask(capsys, moved, tmp_path / name)
        assert again.equals(found)


def test_a_text_that_nobody_trained_on_is_noted(served, tmp_path, capsys):
    rows = make_rows(5).assign(city=["Bern", "Rome\x1b[2J", "Bern", "Oslo", "Bern"])
    rows.to_csv(tmp_path / "new.csv", index=False)
    found, notes = ask(capsys, served / "cluster-0", tmp_path / "new.csv")
    assert len(found) == 5
    told = "2 of 5 rows have a city that nobody trained on, such as Rome\\x1b[2J"
    assert notes == f"note: {told}\n"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"age": "?"}, "row 1 has age=nan, which lacks, or is no finite number"),
        ({"age": "old"}, "row 1 has age=old, which lacks, or is no finite number"),
        ({"age": "1e40"}, "row 1 has age=1e+40, which lacks, or is no finite number"),
        ({"city": ""}, "new.csv: row 1 has city=nan, which lacks, or is no finite"),
        ({"age": None}, "lacks the column age; "),
        ({"city": None, "City": "Bern"}, "lacks the column city; did you mean City"),
    ],
    ids=str,
)
def test_a_bad_row_is_one_line(changed, words, served, tmp_path, capsys):
    rows = make_rows(3).drop(columns=[k for k, v in changed.items() if v is None])
    rows = rows.assign(**{k: v for k, v in changed.items() if v is not None})
    rows.to_csv(tmp_path / "new.csv", index=False)
    card = served / "cluster-0" / "card.json"
    content = json.loads(card.read_text())
    del content["inputs"][0]["missing"]
    card.write_text(json.dumps(content))
    require_refusal(capsys, words, served / "cluster-0", tmp_path / "new.csv")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("none.csv", None, "use a file that is there"),
        ("new.CSV", "age\n3\n", "new.CSV lacks the column city"),
        ("new.txt", "age\n3\n", "use a file that ends in .csv or .parquet"),
        ("new.csv", "", "cannot be read"),
        ("new.csv", "age,city,dose\n", "use a file with rows"),
        ("new.csv", "age,age,city,dose\n1,1,Bern,1\n", "called age"),
        ("new.parquet", "age,city,dose\n1,Bern,1\n", "cannot be read"),
    ],
)
def test_a_file_that_is_no_table_is_one_line(
    name, content, words, served, tmp_path, capsys
):
    if content is not None:
        (tmp_path / name).write_text(content)
    require_refusal(capsys, words, served / "cluster-0", tmp_path / name)


def test_one_cluster_answers_and_all_of_them_assign(served, tmp_path, capsys):
    words = "use the folder of a cluster that export made, such as served/cluster-0"
    require_refusal(capsys, words, served, tmp_path / "data.csv")
    data = ["--data-dir", str(tmp_path / "data.csv")]
    assert assign.main([str(served / "cluster-0"), *data]) == 2
    assert "use the folder above, with clusters.json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("format", 1, "another version of cfl-flower; write it with"),
        ("inputs", [{"column": "age", "mean": "x"}], "cannot be read"),
        ("inputs", [{"column": "age"}], "cannot be read"),
        ("inputs", [{}], "it lacks 'column'"),
        ("inputs", [], "the model is of no table"),
        ("classes", ["no"], "cannot be read"),
        ("network", {"_target_": "os.system"}, "is not allowed"),
    ],
)
def test_a_card_that_somebody_changed_is_one_line(
    key, value, words, served, tmp_path, capsys
):
    card = served / "cluster-0" / "card.json"
    card.write_text(json.dumps({**json.loads(card.read_text()), key: value}))
    make_rows(3).to_csv(tmp_path / "new.csv", index=False)
    require_refusal(capsys, words, served / "cluster-0", tmp_path / "new.csv")


def test_the_card_says_what_clients_do_and_who_they_are(run_small, tmp_path, capsys):
    options = ["strategy.label_shares=true", "strategy.fine_tuning=2"]
    make_rows().to_csv(tmp_path / "data.csv", index=False)
    where = [f"data_dir={tmp_path}", "dataset.missing=mean", "strategy=fedavg"]
    run = run_small(*where, *TABLE, *SITES, *options)
    export(run.folder, tmp_path / "served", licence="CC-BY-4.0")
    folder = tmp_path / "served" / "cluster-0"
    card = json.loads((folder / "card.json").read_text())
    assert card["trained"]["clients"] == 4
    assert card["trained"]["rounds"] == 4
    assert card["classes"] == ["no", "yes"]
    assert card["licence"] == "CC-BY-4.0"
    assert card["trained"]["accuracy"] == round(run.rounds[-1]["accuracy"], 4)
    page = (folder / "card.md").read_text()
    assert "| city | K\u00f6ln \\| &lt;b&gt; |" in page
    assert "| licence | CC-BY-4.0 |" in page
    found, notes = ask(capsys, folder, tmp_path / "data.csv")
    assert len(found) == 240
    assert "which each client fine-tunes, to whose outputs each client adds" in notes
