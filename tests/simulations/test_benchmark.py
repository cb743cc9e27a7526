"""The benchmark finds its parts and its harness computes ratios.

The measured times depend on the machine, and are not tested.
"""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib import import_module
from statistics import fmean

import pytest

from simulations.benchmark.__main__ import PARTS
from simulations.benchmark.measure import (
    Seconds,
    Stopwatch,
    between,
    combine,
    compare,
    measure,
    set_up,
    within,
)


@pytest.mark.parametrize("part", PARTS)
def test_every_module_is_a_part_that_yields_rows(part: str) -> None:
    rows = import_module(f"simulations.benchmark.{part}").rows
    assert inspect.isgeneratorfunction(rows)
    assert inspect.getdoc(rows)


@pytest.mark.parametrize("part", PARTS)
def test_every_run_of_the_benchmark_composes(part: str) -> None:
    module = import_module(f"simulations.benchmark.{part}")
    for name, line in vars(module).items():
        if name.isupper() and "strategy=" in str(line):
            config, model, start, x, y = set_up(line, 3)
            assert config.participants <= config.clients
            assert len(start) == len(model.to_vector())
            assert x.shape == (3, *config.dataset.shape)
            assert len(y) == 3


def test_steps_take_turns_and_are_measured_as_often_as_asked() -> None:
    done: list[str] = []
    laps = measure(lambda: done.append("ours"), lambda: done.append("plain"), count=3)
    assert done == ["ours", "plain"] * 3
    assert len(laps) == 2
    assert all(lap.wall >= 0 and lap.cpu is not None for lap in laps)


def test_a_stopwatch_measures_the_time_since_the_last_lap() -> None:
    watch = Stopwatch()
    sum(range(300_000))
    long, short = watch.lap(), watch.lap()
    # CPU time: on a busy machine any lap may take long.
    assert long.wall > 0
    assert long.cpu is not None
    assert short.cpu is not None
    assert long.cpu > short.cpu


def test_a_reference_is_the_mean_of_before_and_after() -> None:
    references = iter([Seconds(1.0, 0.5), Seconds(3.0, 1.5)])
    done, reference = between(lambda: next(references), lambda: "run")
    assert (done, reference) == ("run", Seconds(2.0, 1.0))


def test_cpu_seconds_are_unknown_where_other_processes_work() -> None:
    laps = [Seconds(1.0), Seconds(2.0)]
    assert combine(fmean, laps) == Seconds(1.5, None)
    assert str(Seconds(1.5)) == "1.5 / -"


def test_a_ratio_is_ours_by_the_references_wall_time() -> None:
    row = compare("a round", Seconds(3.0, 2.0), Seconds(2.0), 1.3)
    assert (row.figure, row.limit, row.holds) == ("1.5 x", "1.3 x", False)
    assert row.seconds == "3 / 2 against 2 / -"
    assert within("memory", 1.3, 1.5, "GB").holds


def test_an_unknown_part_is_refused() -> None:
    command = [sys.executable, "-m", "simulations.benchmark", "nothing"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "clustering" in done.stderr
