"""The benchmark finds its parts and its harness computes ratios.

The measured times depend on the machine, and are not tested.
"""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib import import_module
from shlex import split

import numpy as np
import pytest

from cfl_flower.config.compose import compose_config
from tests.benchmarks.__main__ import PARTS
from tests.benchmarks.measure import compare, measure, within


@pytest.mark.parametrize("part", PARTS)
def test_every_module_is_a_part_that_yields_rows(part: str) -> None:
    rows = import_module(f"tests.benchmarks.{part}").rows
    assert inspect.isgeneratorfunction(rows)
    assert inspect.getdoc(rows)


@pytest.mark.parametrize("part", PARTS)
def test_every_run_of_the_benchmark_composes(part: str) -> None:
    module = import_module(f"tests.benchmarks.{part}")
    for name, line in vars(module).items():
        if name.isupper() and "strategy=" in str(line):
            config = compose_config(split(line))
            assert config.participants <= config.clients


def test_steps_take_turns_and_are_measured_as_often_as_asked() -> None:
    done: list[str] = []
    laps = measure(lambda: done.append("ours"), lambda: done.append("plain"), count=3)
    assert done == ["ours", "plain"] * 3
    assert laps.shape == (2, 2)
    assert (laps >= 0).all()


def test_a_ratio_is_ours_by_the_references_wall_time() -> None:
    row = compare("a round", np.array([3.0, 2.0]), np.array([2.0, np.nan]), 1.3)
    assert (row.figure, row.limit, row.holds) == ("1.5 x", "1.3 x", False)
    assert row.seconds == "3 / 2 against 2 / -"
    assert within("memory", 1.3, 1.5, "GB").holds


def test_an_unknown_part_is_refused() -> None:
    command = [sys.executable, "-m", "tests.benchmarks", "nothing"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "cores, gpu, pfl, scale" in done.stderr
