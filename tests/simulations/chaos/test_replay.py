"""A run of devices is judged by what its records say, and by the same run once more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cfl_flower.runs.reading import read_lines
from simulations.chaos.replay import (
    ReplayGrid,
    counted_twice,
    judge,
    losses,
    unexplained,
)
from tests.cfl_flower.client.test_node_config import (
    HIGH,
    LOW,
    SITES,
    add_samples,
    node_config,
)
from tests.conftest import Runner

LOST = [(2, "train", "site-a"), (3, "evaluate", "site-b"), (3, "train", "site-b")]
STRIKES = {"site-a": [(2, 2)], "site-b": [(3, 3)]}
RUN = ["strategy=fielding", *SITES, "rounds=3", "strategy.local.epochs=1"]


@pytest.fixture
def devices(tmp_path: Path) -> list[dict[str, Any]]:
    """Three devices with data."""
    for name, labels in (("a", LOW), ("b", HIGH), ("c", LOW)):
        add_samples(tmp_path / f"site-{name}", "first", labels)
    return [node_config(tmp_path, f"site-{name}") for name in "abc"]


@pytest.fixture
def folder(run_small: Runner, devices: list[dict[str, Any]]) -> Path:
    """A run in which some results got lost."""
    small = [*RUN, "drift.rounds=[]", "partition.groups=2"]
    return run_small(*small, grid=ReplayGrid(devices, LOST)).folder


def test_a_run_is_as_its_replay_with_the_same_failures(
    folder: Path, devices: list[dict[str, Any]]
) -> None:
    assert sorted(losses(folder)) == sorted(LOST)
    assert judge(folder, RUN, devices, STRIKES) == []


def test_a_result_that_entered_although_it_failed_is_found(
    folder: Path, devices: list[dict[str, Any]]
) -> None:
    path = folder / "rounds.jsonl"
    rows = read_lines(path)
    rows[1]["failures"] = []
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = judge(folder, RUN, devices, STRIKES)
    assert "checkpoint: other models" in found


def test_a_client_with_two_rows_in_a_round_is_named() -> None:
    rows = [{"round": 1, "client": "site-a"}] * 2 + [{"round": 2, "client": "site-a"}]
    assert counted_twice(rows) == ["clients.jsonl: site-a has 2 rows in round 1"]


@pytest.mark.parametrize(
    ("strikes", "good"),
    [
        ({"site-a": [(3, 3)]}, True),  # in the round of the first failure
        ({"site-a": [(2, 2)]}, True),  # in the last one in which all was well
        ({"site-a": [(1, 1)]}, False),
        ({"site-a": [(5, 5)]}, False),
        ({"site-a": [(1, 3)]}, True),  # an order that was carried out in between
        ({"site-b": [(3, 3)]}, False),
    ],
)
def test_failures_are_explained_by_a_fault_since_all_was_well(
    strikes: dict[str, list[tuple[int, int]]], good: bool
) -> None:
    failed = [(3, "train", "site-a"), (4, "train", "site-a")]
    assert (unexplained(failed, strikes) == []) is good
