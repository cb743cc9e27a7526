"""A disturbed run ends as its replay; a result that was counted wrongly is found."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.chaos import devices as on_devices
from tests.chaos.ledger import EQUAL, Ledger

SEED = 5
"""Of faults of both servers and of devices that die and answer otherwise."""


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
