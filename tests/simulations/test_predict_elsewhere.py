"""Sites with tables of their own predict, and so does whoever has not this project."""

import json
import re
import subprocess
import venv
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from packaging.requirements import Requirement

from simulations import assign
from simulations.assignment import open_run, open_served
from simulations.export import export
from simulations.served import CARD
from tests.cfl_flower.engine.sites import COLUMNS, Tables
from tests.cfl_flower.engine.sites import run as run_sites
from tests.conftest import run_command
from tests.simulations.test_export import PAGE
from tests.simulations.test_predict import ask


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
