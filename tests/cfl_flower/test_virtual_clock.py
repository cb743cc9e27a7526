from __future__ import annotations

import numpy as np

from cfl_flower.devices import Device
from cfl_flower.fleet import Outcome
from cfl_flower.records import PASSES
from cfl_flower.types import Result
from cfl_flower.virtual_clock import VirtualClock


def test_a_clock_waits_for_the_slowest_and_begins_anew() -> None:
    devices = {0: Device(1.0, 8.0), 1: Device(4.0, 8.0)}
    clock = VirtualClock(devices.__getitem__)
    results = [Result(client, 1, metrics={PASSES: 10}) for client in devices]
    clock.note(Outcome(results, [], traffic=dict.fromkeys(devices, 1000)))
    expected = [device.seconds(10.0, 1000) for device in devices.values()]
    assert expected[0] < expected[1]
    assert clock.seconds([0, 1]).tolist() == expected
    assert np.isnan(clock.seconds([2])).all()
    assert clock.wait([0]) == expected[0]
    assert clock.wait() == 0.0
