"""A disturbed run ends as its replay; a result that was counted wrongly is found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cfl_flower.runs.reading import read_lines
from tests.cfl_flower.client.test_node_config import (
    HIGH,
    LOW,
    SITES,
    add_samples,
    node_config,
)
from tests.chaos import devices as on_devices
from tests.chaos.ledger import EQUAL, Ledger
from tests.chaos.replay import ReplayGrid, judge, losses
from tests.conftest import Runner

SEED = 5
"""Of faults of both servers and of devices that die and answer otherwise."""
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


@pytest.mark.slow
@pytest.mark.ray
def test_a_run_under_chaos_ends_with_the_same_bits() -> None:
    command = [sys.executable, "-m", "tests.chaos", "--minutes", "0", "--seed=16"]
    asked = [*command, "--strategies", "fielding"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 equal to the bit" in done.stdout


@pytest.mark.slow
@pytest.mark.devices
def test_a_run_on_devices_under_chaos_is_as_its_replay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(on_devices, "ROUNDS", 3)
    ledger = Ledger()
    assert len([*on_devices.disturb_all(["fielding"], 0, SEED, ledger)]) == 1
    assert ledger.problems == []
    assert ledger.ends == {EQUAL: 1}
    assert ledger.faults.total() >= 3
