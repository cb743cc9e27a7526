"""FedAvg and IFCA by this project, in its own environment and as its users start it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cfl_flower.analysis.saved import load_run
from cfl_flower.config.compose import compose_config
from cfl_flower.runs.console import Verbosity, at_verbosity
from cfl_flower.runs.loggers import NoLogger
from cfl_flower.settings import settings
from simulations.run import run as train
from tests.benchmarks.peers.scripts.job import Job, carry_out, lap


@settings("logger")
class Laps(NoLogger):
    """Says when a round is done."""

    @contextmanager
    def open(self, config: Any, done: int) -> Iterator[Any]:
        yield lambda record, rows, state: lap()


def run(job: Job) -> list[Any]:
    """Train as the job's overrides say."""
    folder = Path(job.folder, "run")
    laps = "logger._target_=tests.benchmarks.peers.scripts.with_cfl_flower.Laps"
    # Nothing may come between the letters of a lap.
    with at_verbosity(Verbosity.QUIET):
        train(compose_config([*job.overrides, laps, f"output_dir={folder}"]))
    return list(load_run(folder).load_state()[1].models)


if __name__ == "__main__":
    carry_out(run)
