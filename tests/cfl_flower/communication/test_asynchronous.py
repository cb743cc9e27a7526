from __future__ import annotations

import pytest

from cfl_flower.communication import asynchronous as backoff
from cfl_flower.communication.asynchronous import Backoff


def test_device_rests_after_a_failure_and_not_after_a_success() -> None:
    devices = Backoff()
    devices.note(1, valid=False)
    devices.note(2, valid=True)
    assert devices.resting == {1}
    devices.note(1, valid=True)
    assert devices.resting == set()


def test_a_rest_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "REST", 0.0)
    devices = Backoff()
    devices.note(1, valid=False)
    assert devices.resting == set()


def test_backoff_gives_up_when_all_fail_three_times_in_a_row() -> None:
    devices = Backoff()
    assert not devices.hopeless([])
    for sound in (False, False, True, False, False):
        devices.note(1, sound)
    assert not devices.hopeless([1])
    devices.note(1, valid=False)
    assert devices.hopeless([1])
    assert not devices.hopeless([1, 2])
