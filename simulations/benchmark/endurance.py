"""Whether a long run grows: memory, open files, threads, and bytes on disk.

    TMPDIR=/dev/shm python -m simulations.benchmark endurance

looks from outside at runs whose data change every 12 rounds: 2,000 rounds of each
method in process, and 300 of the main job on Ray. Half an hour; on a disk, for which
every round waits, longer.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import pandas as pd
import psutil

from simulations.benchmark import measure as bench

METHODS = (
    *("fedavg", "local", "static", "fielding", "oracle"),
    *("stocfl", "fedccfa", "ccfl", "flexcfl"),
)
"""Those of the main job, and four more."""
ROUNDS = 2000
ROUNDS_ON_RAY = 300
POINTS = 20
"""Of a curve. On Ray each is of more than the 5 s for which Flower's SuperLink keeps an
idle connection open."""
PAUSE = 0.05
"""Seconds between two looks at a run."""

SWAPS = "{_target_: cfl_flower.data.worlds.drift.Exchange, first: 37, every: 12}"
DRIFTS = ("drift=regroup_and_back", f"+drift.steps.swaps={SWAPS}")
"""The main job's two, and one every 12 rounds: of new groups there are only so many."""

ALL = "all processes"
PARTS = {
    "flwr-simulation": "server",
    "ray::ClientAppA": "workers",
    "flower-superlin": "SuperLink",
    "raylet": "Ray's own",
    "gcs_server": "Ray's own",
}
"""What processes of a run on Ray are, by the first 15 letters of their names."""

OF_A_MOMENT = {"memory": "sum", "files": "sum", "threads": "sum", "stored": "last"}
OF_A_POINT = {"memory": "max", "files": "min", "threads": "min", "stored": "last"}
"""How looks become a point of a curve. Files and threads that come and go in every
round are no growth."""


class Usage(NamedTuple):
    """What a process has, counted for a part of the run."""

    part: str
    memory: int
    """Bytes, without pages of files: the system takes those as it likes."""
    files: int
    threads: int


Curves: TypeAlias = dict[str, pd.DataFrame]
"""By the name of a run, or of a part of it: a point of each few rounds, whose number is
the index."""


def rows() -> Iterator[bench.Row]:
    """Measure each method in process, and the main job on Ray."""
    for method in METHODS:
        command = "simulations.run", f"strategy={method}", "engine=inprocess"
        yield judge(f"{method}, {ROUNDS:,} rounds", _carry_out(command, ROUNDS)[ALL])
    on_ray = _carry_out(("simulations.compare",), ROUNDS_ON_RAY)
    for part, curve in on_ray.items():
        yield judge(f"main job, {ROUNDS_ON_RAY} rounds on Ray: {part}", curve)


def _carry_out(command: Sequence[str], rounds: int) -> Curves:
    with tempfile.TemporaryDirectory() as folder:
        run = (f"rounds={rounds}", f"output_dir={folder}/run", *DRIFTS, "-q")
        line = (sys.executable, "-m", *command, *run)
        return watch(line, Path(folder), rounds // POINTS)


def watch(command: Sequence[str], folder: Path, span: int) -> Curves:
    """Look at a command's processes until it ends; return the curves of its parts.

    There is a point for every ``span`` rounds of the fastest of the runs below
    ``folder``, until that ends. Raises `CalledProcessError` if the command fails.
    """
    seen = []
    with psutil.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            moment = time.monotonic()
            usages = list(look_at(process))
            done, stored = measure_files(folder)  # afterwards: none has ended unseen
            point = (done // span + 1) * span
            seen += [(*usage, moment, point, stored) for usage in usages]
            time.sleep(PAUSE)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    found = pd.DataFrame(seen, columns=[*Usage._fields, "moment", "round", "stored"])
    whole = found.loc[found["round"] < found["round"].max()]  # then it ends
    moments = whole.groupby(["part", "round", "moment"]).agg(OF_A_MOMENT)
    points = moments.groupby(["part", "round"]).agg(OF_A_POINT)
    return {str(part): each.droplevel(0) for part, each in points.groupby("part")}


def look_at(process: psutil.Process) -> Iterator[Usage]:
    """Yield what a process and each that it has started have now."""
    for each in (process, *process.children(recursive=True)):
        with suppress(psutil.Error):  # it may have ended
            pages = each.memory_info()
            memory = pages.rss - pages.shared
            usage = Usage(ALL, memory, each.num_fds(), each.num_threads())
            yield usage
            if part := PARTS.get(each.name()[:15]):
                yield usage._replace(part=part)


def measure_files(folder: Path) -> tuple[int, int]:
    """Return the rounds of the fastest run below a folder, and the bytes of all."""
    done = 0
    size = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # it may have been replaced
            size += path.stat().st_size
            if path.name == "rounds.jsonl":
                done = max(done, path.read_bytes().count(b"\n"))
    return done, size


def judge(name: str, curve: pd.DataFrame) -> bench.Row:
    """Return how much a part of a run has grown since the end of its first tenth."""
    later = curve.iloc[len(curve) // 10 :]
    start = later.iloc[0]
    last = later.iloc[-1]
    most = later.max()
    memory = most["memory"] / start["memory"]
    more = most - later.min()
    files = int(more["files"])
    threads = int(more["threads"])
    stored = (last["stored"] - start["stored"]) / np.ptp(later.index)
    figure = f"{memory:.3f} x {start['memory'] / 1e6:.0f} MB, files +{files}, "
    figure += f"threads +{threads}, {stored / 1e3:.1f} kB a round"
    holds = bool(memory <= 1.05 and files == threads == 0)
    return bench.Row(name, figure, "1.05 x, +0, +0", holds)
