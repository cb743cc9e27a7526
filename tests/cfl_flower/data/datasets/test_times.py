"""Times that leave most periods of a stream empty are told; dates in digits refused."""

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfl_flower.data.datasets.npz import Npz
from cfl_flower.data.datasets.tables import Csv, Parquet
from cfl_flower.data.datasets.times import COMPACT
from cfl_flower.data.reading.inferred import InferredDataset
from cfl_flower.data.worlds.arrivals import Release
from cfl_flower.data.worlds.partition import Partition
from cfl_flower.data.worlds.stream import Stream
from cfl_flower.errors import ConfigError

DAYS = [date(2023, 1, 1) + timedelta(day) for day in range(730)]


def as_csv(folder: Path, times: list[Any]) -> InferredDataset:
    rows = [f"{place % 7},{time},{place % 3}" for place, time in enumerate(times)]
    (folder / "data.csv").write_text("\n".join(["a,when,label", *rows]))
    return Csv(time="when")


def as_npz(folder: Path, times: list[Any]) -> InferredDataset:
    count = np.arange(len(times))
    time = np.array(times)
    if time.dtype.kind == "O":
        time = time.astype("datetime64[D]")
    np.savez(folder / "data.npz", x=count[:, None] % 7, y=count % 3, time=time)
    return Npz()


def stream(dataset: InferredDataset, folder: Path, **own: Any) -> Stream:
    drift = Release(every=2, first=1, periods=10, order="time", **own)
    complete = dataset.complete(str(folder))
    return Stream(complete, Partition(), drift, 3, 0, 20, str(folder))


@pytest.mark.parametrize("write", [as_csv, as_npz])
def test_a_date_far_from_all_others_is_told_by_what_it_does(write, tmp_path):
    dataset = write(tmp_path, [*DAYS[:5], date(9999, 12, 31), *DAYS[6:]])
    (line,) = stream(dataset, tmp_path).notes()
    assert "8 of 10 periods bring no sample to train on" in line
    assert not stream(write(tmp_path, DAYS), tmp_path).notes()
    dataset = write(tmp_path, [date(1900, 1, 1), *DAYS[1:]])
    with pytest.raises(ConfigError, match=r"no client has .* of 10 periods bring"):
        stream(dataset, tmp_path, window=2).require_samples()


def test_periods_without_samples_are_told(tmp_path):
    dataset = as_csv(tmp_path, [*range(100), *range(250, 350), *range(500, 600)])
    (line,) = stream(dataset, tmp_path).notes()
    assert line.startswith("4 of 10 periods bring no sample to train on")
    assert not stream(as_csv(tmp_path, [*range(600)]), tmp_path).notes()


@pytest.mark.parametrize("write", [as_csv, as_npz])
@pytest.mark.parametrize(
    ("first", "step"),
    [
        *((0, 1), (0, 2**53 // 99), (0, 10**9 * 86400 * 365), (0, (2**63 - 1) // 99)),
        *((-(2**63), 1), (-(2**63), (2**64 - 1) // 99), (-(2**62), 2**63 // 99)),
        *((2**63 - 100, 1), (2**62, 2**62 // 99), (10**18, 10**16)),
    ],
)
def test_periods_are_equal_whatever_the_times_are(write, first, step, tmp_path):
    dataset = write(tmp_path, [first + step * place for place in range(100)])
    source = stream(dataset, tmp_path)
    for period in range(10):
        views = [source.view(client, 1 + 2 * period) for client in range(3)]
        pool = views[0].train_pool
        there = np.concatenate([pool.times[view.train_indices] for view in views])
        places = [(int(time) - first) // step for time in pool.times]
        expected = [place for place in places if place < 10 * (period + 1)]
        assert sorted((int(time) - first) // step for time in there) == sorted(expected)


@pytest.mark.parametrize("periods", [2, 10, 2**40])
@pytest.mark.parametrize("first", [0, -(2**63), 2**62, 10**18])
@pytest.mark.parametrize("step", [1, 2**40, 10**16])
def test_a_first_period_is_exact_whatever_the_times_are(first, step, periods, tmp_path):
    as_csv(tmp_path, [first + step * place for place in range(100)])
    own = {"periods": periods, "standardise": "pooled", "test_fraction": 0.01}
    train, _ = Csv(time="when", **own).load(str(tmp_path))
    times = [(int(time) - first) // step for time in train.times]
    known = train.x[[place * step * periods < 99 * step + 1 for place in times]]
    assert known.double().mean().item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("form", ["%y%m%d", "%Y%j", "%d%m%y", "%Y%m%d", "%Y%m"])
def test_dates_in_digits_alone_need_their_format(form, tmp_path):
    dataset = as_csv(tmp_path, [day.strftime(form) for day in DAYS])
    with pytest.raises(ConfigError, match=r"looks like a date; .*dataset.time_format"):
        dataset.load(str(tmp_path))
    # Where a number has lost its first zero.
    assert COMPACT.fullmatch(str(int(date(2005, 3, 4).strftime(form))))


@pytest.mark.parametrize("step", [1, 60, 7919])
def test_numbers_that_are_no_dates_stay_numbers(step, tmp_path):
    for start in (10_000, 100_000, 2_500_000, 1_700_000_000):
        dataset = as_csv(tmp_path, [start + step * place for place in range(90)])
        assert dataset.load(str(tmp_path))[0].times is not None


def as_typed(folder: Path, times: list[Any]) -> InferredDataset:
    pytest.importorskip("pyarrow", reason="needs pip install 'cfl-flower[data]'")
    place = np.arange(len(times))
    table = pd.DataFrame({"a": place % 7, "when": times, "label": place % 3})
    table.to_parquet(folder / "data.parquet")
    return Parquet(time="when")


@pytest.mark.parametrize("write", [as_csv, as_typed])
def test_true_and_false_are_no_times(write, tmp_path):
    dataset = write(tmp_path, [place % 2 == 0 for place in range(100)])
    with pytest.raises(ConfigError, match="row 1 has when=True, which is no"):
        dataset.load(str(tmp_path))


@pytest.mark.parametrize("step", ["us", "ms", "s"])
@pytest.mark.parametrize("write", [as_csv, as_npz, as_typed])
def test_moments_within_a_second_are_told_apart(write, step, tmp_path):
    steps = np.random.default_rng(0).permutation(100)
    moments = np.datetime64("2024-01-31T12:00:00", step) + steps
    times = {as_npz: moments, as_csv: moments.astype(str)}
    dataset = write(tmp_path, times.get(write, moments.tolist()))
    first = stream(dataset, tmp_path).view(0, 1)
    shown = first.train_pool.times[first.train_indices]
    everything = np.sort(first.train_pool.times)
    assert len(np.unique(everything)) == len(everything)
    assert shown.max() < everything[len(everything) // 5]
