"""The benchmark finds its parts; what they measure is not for a test."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib import import_module

import pytest

from simulations.benchmark.__main__ import PARTS
from simulations.benchmark.measure import times


@pytest.mark.parametrize("part", PARTS)
def test_every_module_is_a_part_that_yields_lines(part: str) -> None:
    rows = import_module(f"simulations.benchmark.{part}").rows
    assert inspect.isgeneratorfunction(rows)
    assert inspect.getdoc(rows)


@pytest.mark.slow
def test_a_part_ends_with_its_figures() -> None:
    # The shortest one; what it finds depends on the machine.
    rows = list(import_module("simulations.benchmark.ccfl").rows())
    assert len(rows) == 2
    assert all(row.figure[0].isdigit() for row in rows)


def test_a_step_is_timed_as_often_as_asked() -> None:
    done: list[int] = []
    assert len(times(lambda: done.append(1), 3)) == len(done) == 3


def test_a_part_that_is_not_there_is_refused() -> None:
    command = [sys.executable, "-m", "simulations.benchmark", "nothing"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "clustering" in done.stderr
