"""The harness of the benchmark: times, runs, and the table."""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple, ParamSpec, TypeVar

import numpy as np
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

from cfl_flower.analysis.saved import SavedRun, read_finished
from cfl_flower.config.compose import compose_config
from cfl_flower.config.overrides import split
from cfl_flower.types import FloatArray
from simulations.run import run

T = TypeVar("T")
P = ParamSpec("P")


def clock() -> FloatArray:
    """Return the wall time and the CPU time of this process in seconds, shape (2,)."""
    return np.array([time.perf_counter(), time.process_time()])


def say(seconds: FloatArray) -> str:
    """Write wall and CPU seconds; of other processes the latter are not known (NaN)."""
    wall, cpu = seconds
    return f"{wall:.3g} / {'-' if np.isnan(cpu) else f'{cpu:.3g}'}"


class Row(NamedTuple):
    """One line of the table: what was measured, its limit, and the times behind it."""

    name: str
    figure: str
    limit: str
    holds: bool
    seconds: str = ""


def within(name: str, value: float, limit: float, unit: str, times: str = "") -> Row:
    """Return a figure with an absolute limit."""
    return Row(
        name, f"{value:.3g} {unit}", f"{limit:.3g} {unit}", value <= limit, times
    )


def compare(name: str, ours: FloatArray, reference: FloatArray, limit: float) -> Row:
    """Return our wall time relative to a reference's."""
    times = f"{say(ours)} against {say(reference)}"
    return within(name, ours[0] / reference[0], limit, "x", times)


def measure(*steps: Callable[[], object], count: int = 3) -> FloatArray:
    """Return the median time of each step, shape (steps, 2).

    They take turns, as machines slow down.
    """
    laps = np.zeros((count, len(steps), 2))
    for row in laps:
        for place, step in enumerate(steps):
            began = clock()
            step()
            row[place] = clock() - began
    return np.asarray(np.median(laps, axis=0))


def in_process(step: Callable[P, T], *values: P.args, **named: P.kwargs) -> T:
    """Return the result of a step in a process of its own, whose memory is its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as worker:
        return worker.submit(step, *values, **named).result()


def finish(overrides: str) -> SavedRun:
    """Carry out a real run, quietly, and read it before its folder is deleted."""
    with tempfile.TemporaryDirectory() as folder:
        return carry_out([*split(overrides), f"output_dir={Path(folder, 'run')}"])


def carry_out(overrides: Sequence[str]) -> SavedRun:
    """Carry out a real run, quietly, and read it."""
    config = compose_config(overrides)
    with redirect_stdout(io.StringIO()):
        run(config)
    found = read_finished(config)
    if found is None:
        raise RuntimeError("the run ended without an error, but is not complete")
    return found


def peak_bytes() -> int:
    """Return the most memory that this process has had, since it was started."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("VmHWM:"))
    return 1024 * int(line.split()[1])


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]
) -> None:
    """Print a table as documents have it."""
    table = Table(*columns, title=title, box=MARKDOWN)
    for row in rows:
        table.add_row(*row)
    Console(width=160).print(table)
