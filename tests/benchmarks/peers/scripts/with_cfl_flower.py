"""FedAvg and IFCA by this project, in its own environment and as its users start it."""

from __future__ import annotations

import time
from pathlib import Path
from threading import Thread
from typing import Any

from tests.benchmarks.peers.scripts.job import Job, carry_out, lap

LOOK_EVERY = 0.005
"""Seconds between looks at the file to which a run adds a line after each round."""


def run(job: Job) -> list[Any]:
    """Train as the job's overrides say."""
    from cfl_flower.analysis.saved import load_run
    from cfl_flower.config.compose import compose_config
    from cfl_flower.runs.console import Verbosity, at_verbosity
    from simulations.run import run as train

    folder = Path(job.folder, "run")
    look = Thread(target=_follow, args=(folder / "rounds.jsonl", job.rounds))
    look.daemon = True
    look.start()
    # Nothing may come between the letters of a lap.
    with at_verbosity(Verbosity.QUIET):
        train(compose_config([*job.overrides, f"output_dir={folder}"]))
    look.join()
    return list(load_run(folder).load_state()[1].models)


def _follow(path: Path, rounds: int) -> None:
    done = 0
    while done < rounds:
        time.sleep(LOOK_EVERY)
        lines = path.read_bytes().count(b"\n") if path.exists() else 0
        for _ in range(done, lines):
            lap()
        done = lines


if __name__ == "__main__":
    carry_out(run)
