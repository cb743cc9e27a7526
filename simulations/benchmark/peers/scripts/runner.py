"""Do a job with one library, and say in a line of JSON what it took.

    python runner.py '{"script": "with_fedjax", "folder": "/tmp/job", ...}'

The job's folder has the data of n clients with s samples each: ``x.npy``, shape
(n, s, 1, 28, 28), and ``y.npy``, shape (n, s); and the initial models, ``start.npy``,
shape (k, d). The trained ones are written to ``models.npy``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Job:
    """What is to be done, and with which script."""

    script: str
    folder: str
    network: str
    """``mclr``, ``mlp`` or ``fedccfa_cnn``."""
    shapes: list[list[int]]
    """Of the network's parameters, as torch has them."""
    rounds: int
    warm_up: int
    """Rounds at the start that are not measured."""
    participants: int
    epochs: int
    batch_size: int
    learning_rate: float
    overrides: str
    """Our own words for all of this."""
    reports: list[str]
    """Distributions whose versions are told."""
    began: float
    """When the process was started, in seconds since the epoch."""

    def data(self) -> tuple[Any, Any]:
        """Return all clients' samples and labels, as memory maps."""
        x, y = (
            np.load(Path(self.folder, f"{name}.npy"), mmap_mode="r") for name in "xy"
        )
        return x, y

    def start(self) -> Any:
        """Return the initial models, shape (k, d)."""
        return np.load(Path(self.folder, "start.npy"))


@dataclass
class Meter:
    """Looks at the clock, the CPU time and the memory after each round."""

    laps: list[tuple[float, float]] = field(default_factory=list)
    peak: int = 0

    def lap(self) -> None:
        """Take the end of a round."""
        self.laps.append((time.time(), cpu_seconds()))
        self.peak = max(self.peak, peak_bytes())

    def answer(self, job: Job) -> dict[str, object]:
        """Return the figures of the rounds after the first ones.

        Without the last one, too: some test all clients in it.
        """
        steady = self.laps[job.warm_up - 1 : -1]
        rounds = [
            (after[0] - before[0], after[1] - before[1])
            for before, after in pairwise(steady)
        ]
        samples = np.load(Path(job.folder, "y.npy"), mmap_mode="r").shape[1]
        steps = job.participants * job.epochs * -(-samples // job.batch_size)
        return {
            "start": self.laps[0][0] - job.began,
            "round": median(wall for wall, _ in rounds),
            "step": fmean(cpu for _, cpu in rounds) / steps,
            "peak": self.peak,
            "versions": {name: version(name) for name in job.reports},
        }


def family() -> dict[int, list[str]]:
    """Return the fields of /proc/PID/stat, from the third on, of us and descendants."""
    everyone = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:  # it has ended
            continue
        # The name, in brackets, may hold anything.
        everyone[int(path.parent.name)] = text.rpartition(")")[2].split()
    found = {os.getpid()}
    added = {os.getpid()}
    while added:
        added = {pid for pid, row in everyone.items() if int(row[1]) in added} - found
        found |= added
    return {pid: everyone[pid] for pid in found}


def cpu_seconds() -> float:
    """Return the CPU time of this process and of all that it has started so far."""
    own = time.process_time()
    ticks = 0
    for pid, row in family().items():
        user, system, ended_user, ended_system = map(int, row[11:15])
        ticks += ended_user + ended_system
        if pid != os.getpid():
            ticks += user + system
    return own + ticks / TICKS


def peak_bytes() -> int:
    """Return the peak resident memory of this process and its descendants, added up.

    What they share counts for each of them.
    """
    total = 0
    for pid in family():
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(ln.split()[1]) for ln in lines if ln.startswith("VmHWM"))
    return total * 1024


def main() -> None:
    """Do the job that the command line holds."""
    job = Job(**json.loads(sys.argv[1]))
    meter = Meter()
    models = import_module(job.script).run(job, meter.lap)
    np.save(Path(job.folder, "models.npy"), np.asarray(models, np.float32))
    print(f"\n{json.dumps(meter.answer(job))}", flush=True)


if __name__ == "__main__":
    main()
