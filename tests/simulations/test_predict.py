"""A served model answers raw rows, with this package and without it."""

import io
import json
import re
import shutil
import subprocess
import venv
from dataclasses import replace
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from packaging.requirements import Requirement

from cfl_flower.analysis.saved import load_run
from cfl_flower.data.datasets.columns import encode
from cfl_flower.errors import ConfigError
from simulations import assign
from simulations.assignment import open_run, open_served
from simulations.export import export
from simulations.predict import main
from simulations.rows import read_rows, to_inputs
from simulations.served import CARD, read_json
from tests.cfl_flower.engine.sites import COLUMNS, Tables
from tests.cfl_flower.engine.sites import run as run_sites
from tests.conftest import Runner, run_command
from tests.simulations.test_export import PAGE

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


def test_a_column_is_read_once_for_all_of_its_categories():
    read = []

    class Cell(str):
        def __str__(self) -> str:
            read.append(self)
            return super().__str__()

    names = [f"city {number}" for number in range(20)]
    frame = pd.DataFrame({"city": [Cell(name) for name in names]}, dtype=object)
    inputs = [{"column": "city", "category": name} for name in reversed(names)]
    x, notes = to_inputs({"inputs": inputs, "reading": {}}, frame)
    assert np.array_equal(x, np.eye(20)[::-1])
    assert not notes
    assert read == names


@pytest.mark.parametrize("text", ["TRUE", "True", "true"])
def test_a_category_that_looks_like_a_truth_is_the_text_of_the_file(text, tmp_path):
    """A reader that saw no other text in the column would make numbers of it."""
    (tmp_path / "new.csv").write_text(f"old,label\n{text},no\n{text},no\n")
    entries = [{"column": "old", "category": each} for each in (text, "unsure")]
    card = {"inputs": entries, "reading": {}, "shape": [2], "label": "label"}
    found, notes = to_inputs(card, read_rows(card, tmp_path / "new.csv"))
    assert found.tolist() == [[1, 0], [1, 0]]
    assert notes == []


@pytest.mark.parametrize("cells", [["TRUE", "False", ""], ["false"], ["?", "true"]])
def test_an_input_of_numbers_takes_true_false_and_what_lacks(cells, tmp_path):
    frame = pd.DataFrame({"old": cells, "label": "no"})
    frame.to_csv(tmp_path / "new.csv", index=False)
    entry = {"column": "old", "missing": 0.25}
    card = {"inputs": [entry], "reading": {}, "shape": [1], "label": "label"}
    found, _ = to_inputs(card, read_rows(card, tmp_path / "new.csv"))
    expected = {"true": 1, "false": 0}
    assert [value for (value,) in found] == [
        expected.get(cell.lower(), 0.25) for cell in cells
    ]


def test_a_duration_is_no_number_and_a_column_that_lacks_is_told(tmp_path):
    frame = pd.DataFrame({"wait": pd.to_timedelta([1, 2], "s"), "age": [None, np.nan]})
    frame.index.name = "new.parquet"
    entries = [{"column": "wait", "missing": 0.0}, {"column": "age", "missing": 5.0}]
    with pytest.raises(ConfigError, match="row 1 has wait=0 days 00:00:01, which"):
        to_inputs({"inputs": entries, "reading": {}}, frame)
    found, notes = to_inputs({"inputs": entries[1:], "reading": {}}, frame)
    assert found.tolist() == [[5.0], [5.0]]
    assert notes == ["no row has a value of age; the mean of the training fills it"]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns", "us, Europe/Berlin"])
def test_dates_are_seconds_whatever_unit_and_zone_a_file_has_them_in(unit, tmp_path):
    """A library writes microseconds where another, or an older one, wrote others."""
    dates = pd.Series(pd.to_datetime(["2024-01-01", None, "1900-01-01"]))
    resolution, _, zone = unit.partition(", ")
    column = dates.astype(f"datetime64[{resolution}]")
    if zone:
        column = column.dt.tz_localize("UTC").dt.tz_convert(zone)
    frame = pd.DataFrame({"born": column})
    frame.to_parquet(tmp_path / "new.parquet")
    entry = {"column": "born", "missing": 0.0}
    card = {"inputs": [entry], "reading": {}, "shape": [1], "label": "no"}
    expected = [1704067200.0, np.nan, -2208988800.0]
    found, _ = to_inputs(card, read_rows(card, tmp_path / "new.parquet"))
    assert np.array_equal(found[:, 0], np.nan_to_num(expected).astype(np.float32))
    # As the training reads it.
    table = pd.concat([frame], keys=[("train", "old.parquet")])
    trained, _ = encode(table, "old.parquet")
    assert np.array_equal(trained[:, 0], expected, equal_nan=True)


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


def test_sites_with_tables_of_their_own_find_the_same_by_run_and_by_folder(
    tmp_path, capsys
):
    run_sites(Tables(tmp_path), tmp_path / "run", "strategy=ifca", "clusters=2")
    export(tmp_path / "run", tmp_path / "served")
    for name in COLUMNS:
        site = tmp_path / name
        found = open_run(tmp_path / "run", data_dir=str(site)).assign(0, 2).found
        table = site / "data.csv"
        other = open_served(tmp_path / "served", table).assign(0, 2).found
        assert found.cluster == other.cluster
        # Other rows are for tests.
        assert found.fit == pytest.approx(other.fit, abs=0.1)
        folder = tmp_path / "served" / f"cluster-{found.cluster}"
        answers, notes = ask(capsys, folder, table)
        own = pd.read_csv(table)["outcome"].to_numpy()
        assert (answers["answer"].to_numpy() == own).mean() > 0.8
        assert notes == ""


def test_a_site_without_labels_finds_its_cluster_by_its_inputs(tmp_path, capsys):
    early = ["strategy=flux", "strategy.warmup=1", "strategy.latest=0.5", "rounds=3"]
    run_sites(Tables(tmp_path), tmp_path / "run", *early)
    export(tmp_path / "run", tmp_path / "served")
    table = tmp_path / "new.csv"
    pd.read_csv(tmp_path / "site-b" / "data.csv")[["age", "city"]].to_csv(table)
    asked = [str(tmp_path / "served"), "--data-dir", str(table)]
    assert assign.main(asked) == 2
    assert "new.csv lacks the column outcome" in capsys.readouterr().err
    assert assign.main([*asked, "--unlabelled"]) == 0
    directory = json.loads((tmp_path / "served" / "clusters.json").read_text())
    cluster = directory["clients"]["site-b"]
    assert f"cluster {cluster}, distance" in capsys.readouterr().out


def bare_python(folder: Path, *packages: str) -> Path:
    """Return a Python with packages of this one, what they need, and no others."""
    venv.create(folder)
    (site,) = folder.glob("lib/python*/site-packages")
    asked = [*packages]
    while asked:
        found = distribution(asked.pop())
        tops = {file.parts[0] for file in found.files or () if ".." not in file.parts}
        for top in tops - {path.name for path in site.iterdir()}:
            (site / top).symlink_to(str(found.locate_file(top)))
            wanted = map(Requirement, found.requires or ())
            asked += [
                each.name
                for each in wanted
                if each.marker is None or each.marker.evaluate({"extra": ""})
            ]
    return folder / "bin" / "python"


READINGS: list[dict[str, Any]] = [
    {},
    {"separator": "semicolon", "decimal": "comma"},
    {"separator": "tab", "encoding": "latin-1"},
    {"header": False},
    {"na_values": ["-999", "keine"]},
]
MARKS = {"semicolon": ";", "tab": "\t"}


def write_as(card: dict[str, Any], rows: pd.DataFrame, new: Path) -> None:
    """Write rows as the training's were read, the first without a number."""
    reading = card["reading"]
    sign = reading["na_values"][0]
    mark = "," if reading["decimal"] == "comma" else "."
    cells = (rows["age"] + 0.5).astype(str).str.replace(".", mark).tolist()
    kept = rows.assign(age=[f"{sign}.0" if sign == "-999" else sign, *cells[1:]])
    mark = MARKS.get(reading["separator"], ",")
    form = {key: reading[key] for key in ("header", "encoding")}
    kept.to_csv(new, index=False, sep=mark, **form)


@pytest.mark.slow
def test_onnxruntime_and_pandas_alone_give_the_same_answers(
    tmp_path, capsys, monkeypatch
):
    """Three sites train on tables of their own; rows are answered elsewhere."""
    monkeypatch.setattr("simulations.export.find_spec", find_spec)
    for name in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    run_sites(Tables(tmp_path), tmp_path / "run")
    export(tmp_path / "run", tmp_path / "served")
    rows = pd.concat([pd.read_csv(tmp_path / name / "data.csv") for name in COLUMNS])
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (code,) = [block for block in blocks if "onnxruntime" in block]
    assert len([line for line in code.splitlines() if line]) <= 43
    (tmp_path / "answers.py").write_text(code)
    python = bare_python(tmp_path / "bare", "onnxruntime", "pandas")
    for absent in ("torch", "flwr", "cfl_flower", "onnx"):
        tried = subprocess.run(
            [python, "-I", "-c", f"import {absent}"], capture_output=True, check=False
        )
        assert b"ModuleNotFoundError" in tried.stderr
    folder = tmp_path / "served" / "cluster-0"
    new = tmp_path / "new.csv"
    answer = [python, "-I", tmp_path / "answers.py", folder, new]
    text = (folder / CARD).read_text()
    for reading in READINGS:
        card = json.loads(text)
        card["reading"] |= reading
        places = {name: str(place) for place, name in enumerate(rows)}
        for each in card["inputs"] if not card["reading"]["header"] else []:
            each["column"] = places[each["column"]]
        (folder / CARD).write_text(json.dumps(card))
        write_as(card, rows, new)
        found, _ = ask(capsys, folder, new)
        assert found["answer"].nunique() == 2
        told = run_command(answer, check=True)
        assert told.stdout.splitlines() == found["answer"].tolist()
        # What predict refuses ends it, too.
        for each in card["inputs"]:
            each.pop("missing", None)
        (folder / CARD).write_text(json.dumps(card))
        assert "no number" in run_command(answer).stderr
