"""Pictures of a run's clients: whose results failed."""

from __future__ import annotations

import pytest

from cfl_flower.analysis.saved import SavedRun, load_run
from simulations.reporting.client_pictures import failures
from tests.conftest import Runner


@pytest.fixture
def run(undisturbed: Runner) -> SavedRun:
    """A run of four rounds of twelve clients, with failures."""
    found = undisturbed("strategy=fielding", "faults.raises=0.2")
    return load_run(found.folder)


def test_failures_add_up(run: SavedRun) -> None:
    count = sum(len(row["failures"]) for row in run.rounds)
    assert sum(bar["results"] for bar in failures(run).rows) == count
