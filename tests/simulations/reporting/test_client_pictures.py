"""Pictures of a run's clients: their clusters over the rounds, by true concept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cfl_flower.analysis.saved import SavedRun, load_run
from simulations.reporting import client_pictures
from simulations.reporting.client_pictures import failures, membership
from tests.conftest import Runner


@pytest.fixture
def run(undisturbed: Runner) -> SavedRun:
    """A run of four rounds of twelve clients, with failures."""
    found = undisturbed("strategy=fielding", "faults.raises=0.2")
    return load_run(found.folder)


def bars_of(run: SavedRun) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the bars of true concepts, and of clusters."""
    layers = membership(run).spec["layer"]
    one, two = (each for each in layers if each["mark"]["type"] == "rect")
    return one["data"]["values"], two["data"]["values"]


def test_rows_are_sorted_by_true_concept(run: SavedRun) -> None:
    concepts, _ = bars_of(run)
    first = {bar["place"]: bar["value"] for bar in concepts if bar["round"] == 0.5}
    assert len(first) == 12
    in_order = [first[place] for place in sorted(first)]
    assert in_order == sorted(in_order)
    assert len(set(in_order)) > 1


def test_bars_say_which_cluster_a_client_was_in(run: SavedRun) -> None:
    _, clusters = bars_of(run)
    table = run.table("cluster")
    shift = min(bar["round"] for bar in clusters) - 0.5
    found = np.full(table.shape, np.nan)
    for bar in clusters:
        row = [str(client) for client in run.clients].index(bar["client"])
        first, last = int(bar["round"] - shift), int(bar["end"] - shift - 1)
        found[row, first : last + 1] = bar["value"]
    np.testing.assert_array_equal(found, table)


def test_of_very_many_clients_some_are_drawn(
    run: SavedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_pictures, "MOST_BARS", 20)
    concepts, clusters = bars_of(run)
    assert len(concepts + clusters) <= 20 + len(run.rounds)
    title = membership(run).spec["layer"][0]["encoding"]["y"]["axis"]["title"]
    assert "(one of" in title


def test_failures_add_up(run: SavedRun) -> None:
    count = sum(len(row["failures"]) for row in run.rounds)
    assert sum(bar["results"] for bar in failures(run).rows) == count
