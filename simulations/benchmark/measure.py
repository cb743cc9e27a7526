"""What the parts of the benchmark share: a line of the table, and stopwatches."""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import mean

from cfl_flower.config.compose import compose_config
from cfl_flower.runs.reading import Finished, read_finished
from simulations.run import run


@dataclass(frozen=True)
class Row:
    """One line of the table: what was measured, and what is asked of it."""

    name: str
    figure: str
    limit: str
    holds: bool


def finish(overrides: list[str]) -> Finished:
    """Carry out a real run, quietly, and read it before its folder goes."""
    with tempfile.TemporaryDirectory() as folder:
        config = compose_config([*overrides, f"output_dir={Path(folder, 'run')}"])
        with redirect_stdout(io.StringIO()):
            run(config)
        found = read_finished(config)
    if found is None:
        raise RuntimeError("the run says that it is complete, but its folder does not")
    return found


def on_two_workers(measure: Callable[[], float]) -> float:
    """Return what a process measures while another one does: they share caches."""
    with ProcessPoolExecutor(2, get_context("spawn")) as workers:
        jobs = [workers.submit(measure) for _ in range(2)]
        return mean(job.result() for job in jobs)


def times(step: Callable[[], object], count: int) -> list[float]:
    """Return the seconds of a step, several times."""
    times = []
    for _ in range(count):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return times


def resident_pages() -> int:
    """Return how many pages of memory this process has now."""
    # The peak that `resource` gives would be the parent's: it survives a spawn.
    return int(Path("/proc/self/statm").read_text().split()[1])
