from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cfl_flower.engine.simulated_devices import FOREVER, Device, Devices, VirtualClock
from cfl_flower.errors import ConfigError
from cfl_flower.learning.gradients import TRAINING_PASSES
from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.types import PASSES, Result


def test_seconds_are_those_of_fedscales_model():
    device = Device(milliseconds=40.0, kbps=1000.0)
    local = LocalTraining(steps=20, batch_size=20)
    passes = TRAINING_PASSES * local.count_samples(600)
    # 3 x batch 20 x 20 steps x 40 ms / 1000, and (down + up) kbit / kbit/s.
    assert device.seconds(passes, 0) == 48.0
    assert device.seconds(0, 2 * 125_000) == 2.0
    assert device.seconds(passes, 2 * 125_000) == 50.0


def test_a_client_keeps_its_device_whoever_else_there_is():
    first, again = (Devices().open(seed=3) for _ in range(2))
    assert [first(i) for i in range(9)] == [again(i) for i in range(9)]
    assert first("site-a") == again("site-a")
    assert first(0) != first(1)
    assert first(0) != Devices().open(seed=4)(0)


def test_devices_are_as_wide_as_the_settings_say():
    settings = Devices(milliseconds=20, slowest=8, kbps=900, narrowest=50)
    drawn = [settings.open(seed=0)(i) for i in range(3000)]
    for numbers, median, width in (
        ([d.milliseconds for d in drawn], 20, 8),
        ([d.kbps for d in drawn], 900, 50),
    ):
        low, middle, high = np.percentile(numbers, [5, 50, 95])
        assert middle == pytest.approx(median, rel=0.1)
        assert high / low == pytest.approx(width, rel=0.25)


def test_a_clock_waits_for_the_slowest_and_begins_anew():
    devices = {0: Device(1.0, 8.0), 1: Device(4.0, 8.0)}
    clock = VirtualClock(devices.__getitem__)
    results = [Result(client, 1, telemetry={PASSES: 10}) for client in devices]
    clock.note(results, dict.fromkeys(devices, 1000))
    expected = [device.seconds(10.0, 1000) for device in devices.values()]
    assert expected[0] < expected[1]
    assert clock.seconds([0, 1]).tolist() == expected
    assert np.isnan(clock.seconds([2])).all()
    assert clock.wait([0]) == expected[0]
    assert clock.wait() == 0.0


ROUNDS = st.lists(st.integers(2, 20), max_size=4, unique=True)


@given(st.integers(1, 60), ROUNDS, ROUNDS, st.floats(0, 0.5), st.floats(0, 0.49))
def test_as_many_come_and_go_as_the_settings_say(
    count, joins, leaves, joining, leaving
):
    come = round(joining * count) if joins else 0
    gone = round(leaving * count) if leaves else 0
    assume(come + gone < count)
    devices = Devices(joins=joins, leaves=leaves, joining=joining, leaving=leaving)
    presence = devices.open_presence(count, seed=3)
    there = [presence.there(number) for number in range(1, 22)]
    assert there[0].sum() == count - come
    assert there[-1].sum() == count - gone
    for number, (before, after) in enumerate(pairwise(there), 2):
        assert (~before & after).any() <= (number in joins)
        assert (before & ~after).any() <= (number in leaves)
    assert (presence.first > 1).sum() == come
    assert (presence.last < FOREVER).sum() == gone
    # A client does one of both at most.
    assert not ((presence.first > 1) & (presence.last < FOREVER)).any()
    # All rounds of a kind have alike many, to one.
    for rounds, found in ((joins, presence.first), (leaves, presence.last + 1)):
        sizes = [int((found == number).sum()) for number in rounds]
        assert max(sizes, default=0) - min(sizes, default=0) <= 1


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"joins": [1]}, r"devices.joins=\[1\] is not allowed; use rounds from 2 on"),
        ({"joins": [2], "leaves": [3], "joining": 0.8}, "devices.joining"),
    ],
)
def test_wrong_settings_are_one_line(settings, said):
    with pytest.raises(ConfigError, match=said):
        Devices(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings", [{"joins": [2], "joining": 0.95}, {"leaves": [2], "leaving": 0.95}]
)
def test_somebody_of_few_clients_is_there(settings):
    devices = Devices(**settings)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="less with 6 clients: none is in round"):
        devices.open_presence(6, seed=0)
    assert devices.open_presence(100, seed=0).there(2).any()
