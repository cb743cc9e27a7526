"""What runs of published tables gave: each figure has a table, and its settings."""

from __future__ import annotations

import os
import re
from argparse import Namespace
from pathlib import Path

import pytest

from simulations.papers.published import Cell, load_tables, suffix
from simulations.papers.recorded import load, read_outcome, settings_digest
from simulations.reproduce import compose_cell, run_folder

KNOWN = load()
TABLES = load_tables()


def cell_of(name: str) -> Cell:
    """Return the cell of a figure; there is none that is no table's."""
    whole = name.removesuffix(suffix(KNOWN["figures"][name]["scale"]))
    table, row, method = whole.split("/")
    assert method in TABLES[table].columns
    return TABLES[table].cell(row, method)


def test_every_figure_is_of_a_table_and_every_run_is_described() -> None:
    for name in KNOWN["figures"]:
        assert cell_of(name).overrides
    for name, run in KNOWN["runs"].items():
        assert run["rounds"] > 0, name
        assert re.fullmatch("[0-9a-f]{16}", run["settings"]), name


def test_a_seed_that_never_got_there_is_no_value() -> None:
    figure = {"values": {"0": None, "1": 1.5}, "last_ten": {}}
    outcome = read_outcome(figure)
    assert (outcome.never, outcome.values) == ([0], {1: 1.5})


@pytest.mark.slow
@pytest.mark.parametrize("name", [*KNOWN["figures"]])
def test_a_recorded_run_had_the_settings_of_today(name: str, tmp_path: Path) -> None:
    data_dir = os.environ.get("CFL_DATA_DIR", "")
    if not data_dir:
        pytest.skip("set CFL_DATA_DIR to a folder with FashionMNIST/raw")
    figure = KNOWN["figures"][name]
    cell = cell_of(name)
    seed = int(next(iter(figure["values"])))
    asked = Namespace(
        output=tmp_path,
        scale=figure["scale"],
        data_dir=Path(data_dir),
        download=False,
        gpus=0.0,
    )
    folder = run_folder(cell, seed, asked).relative_to(tmp_path)
    config = compose_cell(cell, seed, asked)
    run = KNOWN["runs"][str(folder)]
    assert settings_digest(config.resolved) == run["settings"]


def test_a_digest_forgets_what_came_later_and_where_classes_are() -> None:
    strategy = {"_target_": "old.place.Method", "client": "old.Client", "mu": 0}
    old = {"rounds": 3, "strategy": strategy}
    added = {"fine_tuning": 0, "fine_tuning_rate": 0.01}
    moved = {"_target_": "new.Method", "client": "new.place.Client", "mu": 0}
    digest = settings_digest(old)
    assert settings_digest({"rounds": 3, "strategy": moved | added}) == digest
    for other in ({"mu": 1}, {"fine_tuning": 5}, {"_target_": "new.Other"}):
        assert settings_digest({**old, "strategy": moved | other}) != digest
