"""Finished runs for reports, and the same as of another seed or method."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cfl_flower.analysis.saved import SavedRun, load_run
from tests.conftest import Runner


@pytest.fixture(scope="session")
def folders(undisturbed: Runner) -> list[Path]:
    """Two runs with a drift before round 3, the second with failures."""
    fielding = undisturbed("strategy=fielding", "faults.raises=0.2")
    return [undisturbed("strategy=fedavg").folder, fielding.folder]


@pytest.fixture(scope="session")
def run(folders: list[Path]) -> SavedRun:
    """The first of them."""
    return load_run(folders[0])


def changed(run: SavedRun, by: float = 0.0, name: str = "", **own: Any) -> SavedRun:
    """Return a run with other accuracies, of another method or with other settings."""
    strategy = run.resolved["strategy"]
    settings = {"strategy": {**strategy, "name": name or strategy["name"]}, **own}
    rounds = [{**row, "accuracy": row["accuracy"] + by} for row in run.rounds]
    return replace(run, resolved=run.resolved | settings, rounds=rounds)
