"""Runs that commit 919b8e9 saved still open, and go on.

Their settings and checkpoints name modules that have been moved since. The folder was
made there with ``clients=6 participants=3 rounds=3 drift.rounds=[2] model.hidden=4``.
"""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from cfl_flower.analysis.saved import load_run
from cfl_flower.building import locate
from cfl_flower.config.compose import compose_config
from cfl_flower.environment.moved import MOVED, current_path
from cfl_flower.server_app import execute
from simulations.engines.inprocess import InProcessGrid
from simulations.report import render

SAVED = Path(__file__).with_name("of_919b8e9")

SETTINGS = [
    "clients=6",
    "participants=3",
    "drift.rounds=[2]",
    "partition.groups=2",
    "strategy.local.epochs=1",
    "model=mlp",
    "model.hidden=4",
    "resume=true",
]


@pytest.mark.parametrize("method", ["fielding", "ccfl"])
def test_a_run_of_an_older_version_is_reported_and_continued(
    method: str, tmp_path: Path
) -> None:
    folder = shutil.copytree(SAVED / method, tmp_path / method)
    before = load_run(folder)
    assert len(before.rounds) == 3
    assert method in render([before]).html
    config = compose_config(
        [*SETTINGS, f"strategy={method}", "rounds=5", f"output_dir={folder}"]
    )
    execute(InProcessGrid(), config, Console(file=io.StringIO()))
    after = load_run(folder)
    assert after.rounds[:3] == before.rounds
    assert [row["round"] for row in after.rounds] == [1, 2, 3, 4, 5]


def test_a_module_that_was_moved_has_one_name_of_today() -> None:
    assert not MOVED.keys() & set(MOVED.values())
    for old in MOVED:
        assert current_path(f"{old}.Name") == f"{MOVED[old]}.Name"


def test_a_path_of_an_older_version_names_the_class_of_today() -> None:
    found = locate("cfl_flower.data.drift.Regroup")
    assert found is locate("cfl_flower.data.worlds.drift.Regroup")
    replaced = locate("strategies.fedavg_ft.FedAvgFT")
    assert replaced is locate("strategies.fedavg.FedAvg")
