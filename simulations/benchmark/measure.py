"""The harness of the benchmark: stopwatches, reference loops, lines of the table."""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple, ParamSpec, TypeVar

import torch
from threadpoolctl import threadpool_limits

from cfl_flower.analysis.saved import SavedRun, read_finished
from cfl_flower.config.compose import compose_config
from cfl_flower.config.overrides import split
from cfl_flower.models import FlatModel, initial_vector
from simulations.run import run

T = TypeVar("T")
P = ParamSpec("P")


class Seconds(NamedTuple):
    """Wall time, and CPU time of this process (None if other processes work)."""

    wall: float
    cpu: float | None = None

    def __str__(self) -> str:
        cpu = "-" if self.cpu is None else f"{self.cpu:.3g}"
        return f"{self.wall:.3g} / {cpu}"


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


def compare(name: str, ours: Seconds, reference: Seconds, limit: float) -> Row:
    """Return our wall time relative to a reference's."""
    ratio = ours.wall / reference.wall
    return within(name, ratio, limit, "x", f"{ours} against {reference}")


class Stopwatch:
    """Measures laps, from its construction on."""

    def __init__(self) -> None:
        self._last = time.perf_counter(), time.process_time()

    def lap(self) -> Seconds:
        """Return the time since the last lap."""
        now = time.perf_counter(), time.process_time()
        wall, cpu = self._last
        self._last = now
        return Seconds(now[0] - wall, now[1] - cpu)


def combine(
    average: Callable[[list[float]], float], laps: Iterable[Seconds]
) -> Seconds:
    """Return an average of laps."""
    laps = list(laps)
    cpu = [lap.cpu for lap in laps if lap.cpu is not None]
    return Seconds(average([lap.wall for lap in laps]), average(cpu) if cpu else None)


def measure(*steps: Callable[[], object], count: int = 3) -> list[Seconds]:
    """Return the median time of each step; they take turns, as machines slow down."""
    laps: list[list[Seconds]] = [[] for _ in steps]
    for _ in range(count):
        for step, own in zip(steps, laps, strict=True):
            watch = Stopwatch()
            step()
            own.append(watch.lap())
    return [combine(median, own) for own in laps]


def on_one_core(name: str, step: Callable[[], object], limit: float) -> Row:
    """Return the time of a step on one core, with its limit in seconds."""
    with threadpool_limits(limits=1):
        (taken,) = measure(step)
    return within(name, taken.wall, limit, "s", str(taken))


def between(
    reference: Callable[[], Seconds], step: Callable[[], T]
) -> tuple[T, Seconds]:
    """Return the result of a step, and the mean reference before and after it."""
    before = reference()
    done = step()
    return done, combine(fmean, [before, reference()])


def beside_two_workers(
    work: Callable[[], Seconds], step: Callable[[], T]
) -> tuple[T, Seconds]:
    """Return the result of a step, and the time of work while a worker does the same.

    Two workers share caches. They work before the step and after it.
    """

    def on_two_workers() -> Seconds:
        with ProcessPoolExecutor(2, get_context("spawn")) as workers:
            jobs = [workers.submit(work) for _ in range(2)]
            return combine(fmean, [job.result() for job in jobs])

    return between(on_two_workers, step)


def in_process(step: Callable[P, T], *values: P.args, **named: P.kwargs) -> T:
    """Return the result of a step in a process of its own, whose memory is its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as worker:
        return worker.submit(step, *values, **named).result()


def finish(overrides: str) -> SavedRun:
    """Carry out a real run, quietly, and read it before its folder is deleted."""
    with tempfile.TemporaryDirectory() as folder:
        config = compose_config(
            [*split(overrides), f"output_dir={Path(folder, 'run')}"]
        )
        with redirect_stdout(io.StringIO()):
            run(config)
        found = read_finished(config)
    if found is None:
        raise RuntimeError("the run ended without an error, but is not complete")
    return found


def set_up(overrides: str, samples: int) -> tuple[Any, ...]:
    """Return a run's settings, network and initial vector, and random samples."""
    torch.set_num_threads(1)
    config = compose_config(split(overrides))
    shape = config.dataset.shape
    classes = config.dataset.classes
    model = FlatModel(config.model.build(shape, classes))
    start = initial_vector(config.model, shape, classes, config.seed)
    x = torch.rand(samples, *shape)
    y = torch.arange(samples) % classes
    return config, model, start, x, y


def peak_bytes() -> int:
    """Return the most memory that this process has had, since it was started."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("VmHWM:"))
    return 1024 * int(line.split()[1])
