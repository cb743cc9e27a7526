from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from cfl_flower.config.compose import compose_config
from cfl_flower.engine.simulated_devices import Device, Devices, VirtualClock
from cfl_flower.errors import ConfigError
from cfl_flower.learning.gradients import TRAINING_PASSES
from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.types import PASSES, Result

TWO = {
    1: {"computation": 40.0, "communication": 1000.0},
    2: dict.fromkeys(("computation", "communication"), 8.0),
}


def test_seconds_are_those_of_fedscales_model() -> None:
    device = Device(milliseconds=40.0, kbps=1000.0)
    local = LocalTraining(steps=20, batch_size=20)
    passes = TRAINING_PASSES * local.count_samples(600)
    # 3 x batch 20 x 20 steps x 40 ms / 1000, and (down + up) kbit / kbit/s.
    assert device.seconds(passes, 0) == 48.0
    assert device.seconds(0, 2 * 125_000) == 2.0
    assert device.seconds(passes, 2 * 125_000) == 50.0


def test_a_client_keeps_its_device_whoever_else_there_is() -> None:
    first, again = (Devices().open(seed=3) for _ in range(2))
    assert [first(i) for i in range(9)] == [again(i) for i in range(9)]
    assert first("site-a") == again("site-a")
    assert first(0) != first(1)
    assert first(0) != Devices().open(seed=4)(0)


def test_devices_are_as_wide_as_the_settings_say() -> None:
    settings = Devices(milliseconds=20, slowest=8, kbps=900, narrowest=50)
    drawn = [settings.open(seed=0)(i) for i in range(3000)]
    for numbers, median, width in (
        ([d.milliseconds for d in drawn], 20, 8),
        ([d.kbps for d in drawn], 900, 50),
    ):
        low, middle, high = np.percentile(numbers, [5, 50, 95])
        assert middle == pytest.approx(median, rel=0.1)
        assert high / low == pytest.approx(width, rel=0.25)


def write(folder: Path, name: str) -> str:
    path = folder / name
    if name.endswith(".csv"):
        path.write_text("computation,communication,model\n40,1000,x\n8,8,y\n")
    else:
        path.write_text(json.dumps(TWO))
    return name


@pytest.mark.parametrize("name", ["a.csv", "a.json"])
def test_files_of_devices_are_read(tmp_path: Path, name: str) -> None:
    of = Devices(path=write(tmp_path, name)).open(seed=0, data_dir=str(tmp_path))
    assert of(0) == of(2) == Device(40.0, 1000.0)
    assert of(1) == Device(8.0, 8.0)


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("a.csv", b"computation\n40\n", "no column communication"),
        ("b.csv", b"computation,communication\n", "of each device"),
        ("c.csv", b"computation,communication\n40,0\n", "device 0"),
        ("d.csv", b"computation,communication\n40,fast\n", "could not convert"),
        ("e.json", b"[1, 2]", "not the expected structure"),
        # FedScale's own file is a pickle, which is not opened as one.
        ("client_device_capacity", pickle.dumps(TWO), "cannot be read"),
    ],
)
def test_a_bad_file_is_one_line(
    tmp_path: Path, name: str, content: bytes, part: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError) as error:
        Devices(path=str(tmp_path / name)).check()
    assert part in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("override", "allowed"),
    [
        ("devices.milliseconds=0", "a number above 0"),
        ("devices.slowest=0.5", "a number of at least 1"),
        (
            "devices.path=nowhere.csv",
            "nowhere.csv is not allowed; use a file that is there",
        ),
    ],
)
def test_bad_settings_are_found_before_any_training(
    override: str, allowed: str
) -> None:
    with pytest.raises(ConfigError) as error:
        compose_config([override])
    assert allowed in str(error.value)


@pytest.mark.parametrize("samples", [0, 1, 9, 10, 25])
@pytest.mark.parametrize("steps", [None, 1, 7])
def test_samples_of_a_training_are_those_of_its_batches(
    samples: int, steps: int | None
) -> None:
    local = LocalTraining(epochs=2, batch_size=10, steps=steps)
    sizes = [len(part) for part in np.split(np.arange(samples), range(10, samples, 10))]
    taken = [sizes[i % len(sizes)] for i in range(local.count_steps(samples))]
    assert local.count_samples(samples) == sum(taken)


def test_a_clock_waits_for_the_slowest_and_begins_anew() -> None:
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
