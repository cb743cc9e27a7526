"""Faults of devices follow from the seed, and a run that they met is as its replay."""

from __future__ import annotations

import numpy as np
import pytest

from simulations.chaos import devices
from simulations.chaos.device import LATER, SITES, draw_faults
from simulations.chaos.ledger import EQUAL, Ledger

SEED = 5
"""Of faults of both servers and of devices that die and answer otherwise."""


def test_faults_follow_from_the_seed_and_are_of_every_kind() -> None:
    first, again = (
        [draw_faults(rng, now) for now in range(100)]
        for rng in (np.random.default_rng(3), np.random.default_rng(3))
    )
    assert first == again
    faults = [fault for drawn in first for fault in drawn]
    assert {fault.kind for fault in faults} == set(devices.KINDS)
    assert {fault.device for fault in faults} == {*SITES, ""}
    for now, drawn in enumerate(first):
        assert all(0 < fault.due - now <= LATER for fault in drawn)


@pytest.mark.slow
@pytest.mark.devices
def test_a_run_on_devices_under_chaos_is_as_its_replay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(devices, "ROUNDS", 3)
    ledger = Ledger()
    assert len([*devices.disturb_all(["fielding"], 0, SEED, ledger)]) == 1
    assert ledger.problems == []
    assert ledger.ends == {EQUAL: 1}
    assert ledger.faults.total() >= 3
