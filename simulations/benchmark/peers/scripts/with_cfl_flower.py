"""The same by this project, in its own environment and as its users start it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulations.benchmark.peers.scripts.runner import Job

LOOK_EVERY = 0.005
"""Seconds between looks at the file to which a run adds a line after each round."""


def run(job: Job, lap: Callable[[], None]) -> list[Any]:
    """Train as the job's overrides say."""
    from cfl_flower.config.compose import compose_config
    from cfl_flower.config.overrides import split
    from simulations.reporting.saved import load_run
    from simulations.run import run as carry_out

    folder = Path(job.folder, "run")
    config = compose_config([*split(job.overrides), f"output_dir={folder}"])
    look = Thread(target=_follow, args=(folder / "rounds.jsonl", job.rounds, lap))
    look.daemon = True
    look.start()
    carry_out(config)
    look.join()
    return list(load_run(folder).load_state()[1].models)


def _follow(path: Path, rounds: int, lap: Callable[[], None]) -> None:
    size = 0
    done = 0
    while done < rounds:
        time.sleep(LOOK_EVERY)
        if path.exists() and path.stat().st_size > size:
            content = path.read_bytes()
            size = len(content)
            while done < content.count(b"\n"):
                lap()
                done += 1
