"""What makes a network's inputs of a row's values, as `preprocessing.json` has it."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from cfl_flower.config.compose import compose_config
from cfl_flower.data.datasets.tables import Csv
from cfl_flower.server_app import execute
from simulations.engines.inprocess import InProcessGrid

CSV = """age,city,outcome,day
30,Bern,no,2024-01-01
,Zürich,yes,2024-01-02
50,Basel,yes,2024-01-03
41,Bern,no,2024-01-04
28,Basel,no,2024-01-05
63,Zürich,yes,2024-01-06
"""
TABLE = {"label": "outcome", "time": "day", "missing": "mean", "test_fraction": 0.34}


def inputs_of(known: dict[str, Any], frame: pd.DataFrame) -> np.ndarray[Any, Any]:
    """Make inputs of raw rows by what the file says, as somebody else would."""
    columns = []
    for each in known["inputs"]:
        value = frame[each["column"]]
        if "category" in each:
            value = value == each["category"]
        elif "missing" in each:
            value = value.fillna(each["missing"])
        shifted = value.astype(float) - each.get("mean", 0)
        columns.append(shifted / each.get("deviation", 1))
    return np.stack(columns, axis=1)


@pytest.mark.parametrize(
    "scaling",
    [
        {"standardise": "pooled"},
        {"standardise": False},
        {"standardise": False, "normalise": [3, 2]},
    ],
)
def test_it_makes_the_inputs_of_training_of_raw_rows(scaling, tmp_path):
    (tmp_path / "data.csv").write_text(CSV)
    table = Csv(**TABLE, **scaling).complete(str(tmp_path))
    train, test = table.load(str(tmp_path))
    frame = pd.read_csv(tmp_path / "data.csv")
    known = table.preprocessing(str(tmp_path))
    x = inputs_of(known, frame)
    times = pd.to_datetime(frame["day"]).to_numpy("datetime64[us]").astype(np.int64)
    for pool in (train, test):
        rows = [times.tolist().index(time) for time in pool.times.tolist()]
        np.testing.assert_allclose(pool.x, x[rows], atol=1e-6)
        labels = [known["classes"].index(name) for name in frame["outcome"][rows]]
        assert labels == pool.labels.tolist()
    assert [each.get("category") for each in known["inputs"]] == [
        *(None, "Basel", "Bern", "Zürich")
    ]
    assert ("mean" in known["inputs"][1]) is (scaling != {"standardise": False})


@pytest.mark.parametrize(("dataset", "there"), [("csv", True), ("digits", False)])
def test_a_run_on_a_table_writes_it(dataset: str, there: bool, tmp_path: Path) -> None:
    head, rows = CSV.split("\n", 1)
    (tmp_path / "data.csv").write_text(f"{head}\n{rows * 5}")
    own = ["data_dir=" + str(tmp_path)] if there else []
    own += [f"dataset.{key}={value}" for key, value in TABLE.items()] if there else []
    small = "clients=2 participants=2 rounds=1 drift=none partition=iid"
    given = [
        *small.split(),
        "engine=inprocess",
        f"dataset={dataset}",
        *own,
        f"output_dir={tmp_path}/run",
    ]
    execute(InProcessGrid(), compose_config(given), Console(file=io.StringIO()))
    path = tmp_path / "run" / "preprocessing.json"
    assert path.exists() is there
    if there:
        found = json.loads(path.read_text())
        assert (found["format"], found["label"], found["time"]) == (1, "outcome", "day")
