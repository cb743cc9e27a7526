"""The table: every work by every library, one after the other."""

from __future__ import annotations

import json
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
from rich.box import MARKDOWN
from rich.table import Table

from cfl_flower.config.compose import RunConfig
from cfl_flower.runs.console import make_console
from cfl_flower.types import Json
from simulations.benchmark.peers import scripts
from simulations.benchmark.peers.environments import (
    MissingPeerError,
    Peer,
    all_peers,
    execute,
    interpreter,
)
from simulations.benchmark.peers.work import WORKS, Data, Prepared, Work, find_data
from simulations.shell.terminal import make_error_console

TIMEOUT = 1800.0
"""Seconds for a work by a library."""

SETTINGS = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""One thread for each library, and no word of it to others."""

PROJECT = Path(__file__).resolve().parents[3]

COLUMNS = ("library", "CPU, a step", "a round", "first round", "memory", "accuracy")


@dataclass(frozen=True)
class Line:
    """What a library took for a work, and reached."""

    work: str
    peer: str
    figures: Mapping[str, Json]
    """As `scripts.runner` has them."""
    accuracy: float

    @property
    def cells(self) -> tuple[str, ...]:
        """The line of the table, beginning with the library."""
        step = 1e6 * self.figures["step"]
        peak = self.figures["peak"] / 1e9
        return (
            self.peer,
            f"{step:.0f} us" if step < 1000 else f"{step / 1000:.2f} ms",
            f"{self.figures['round']:.3g} s",
            f"{self.figures['start']:.1f} s",
            f"{peak:.2f} GB",
            f"{self.accuracy:.3f}",
        )


def show(works: Sequence[Work] = WORKS, peers: Sequence[Peer] | None = None) -> int:
    """Print the table with versions, and why a library is missing.

    Returns 1 if one of ours is missing, else 0.
    """
    errors = make_error_console()

    def tell(text: str) -> None:
        errors.print(text, markup=False, highlight=False, soft_wrap=True)

    data = find_data()
    peers = all_peers() if peers is None else peers
    pythons, missing = install(peers, tell)
    table = Table("work", *COLUMNS, box=MARKDOWN)
    versions: dict[str, str] = {}
    for work in works:
        name = work.name
        for line in measure(work, data, pythons, missing, tell):
            table.add_row(name, *line.cells)
            versions.update(line.figures["versions"])
            name = ""
    words = [f"{each} {number}" for each, number in sorted(versions.items())]
    console = make_console()
    console.print(table)
    for text in (
        f"{date.today()}, {os.cpu_count()} cores, {platform.machine()}, one thread "
        f"each, {data.name}; {', '.join(words)}.",
        *missing.values(),
    ):
        console.print(text, markup=False, highlight=False, soft_wrap=True)
    return int(any(not peer.attempts for peer in missing))


def install(
    peers: Sequence[Peer], tell: Callable[[str], None]
) -> tuple[dict[Peer, Path], dict[Peer, str]]:
    """Return the Pythons of the libraries, and why others are missing."""
    pythons = {}
    missing = {}
    for peer in peers:
        try:
            pythons[peer] = interpreter(peer, tell)
        except MissingPeerError as error:
            missing[peer] = f"{peer.name} cannot be installed: {error}"
    return pythons, missing


def measure(
    work: Work,
    data: Data,
    pythons: Mapping[Peer, Path],
    missing: dict[Peer, str],
    tell: Callable[[str], None],
) -> Iterator[Line]:
    """Let each library do a work that it has a method for; note which cannot."""
    config = work.config(data)
    prepared = Prepared(config)
    with tempfile.TemporaryDirectory(prefix="cfl-flower-peers-") as folder:
        prepared.write(Path(folder))
        for peer, python in pythons.items():
            if config.names["strategy"] not in peer.methods:
                continue
            job = job_of(work, config, prepared, data, peer, Path(folder))
            try:
                figures = do(python, job, peer)
            except MissingPeerError as error:
                missing[peer] = f"{peer.name} failed at {work.name}: {error}"
                continue
            models = list(np.load(Path(folder, "models.npy")))
            line = Line(work.name, peer.name, figures, prepared.accuracy(models))
            tell(f"{work.name}: {', '.join(line.cells)}")
            yield line


def job_of(
    work: Work,
    config: RunConfig,
    prepared: Prepared,
    data: Data,
    peer: Peer,
    folder: Path,
) -> dict[str, Json]:
    """Return a work as a script gets it, without the time of its start."""
    local = config.strategy.local
    return {
        "script": peer.script,
        "folder": str(folder),
        "network": config.names["model"],
        "shapes": prepared.shapes,
        "rounds": work.rounds,
        "warm_up": work.warm_up,
        "participants": config.participants,
        "epochs": local.epochs,
        "batch_size": local.batch_size,
        "learning_rate": local.learning_rate,
        "overrides": f"{work.line(data)} {peer.engine}",
        "reports": peer.reports,
    }


def do(python: Path, job: Mapping[str, Json], peer: Peer) -> Mapping[str, Json]:
    """Return the figures of a work done by a library, in a process of its own."""
    runner = Path(scripts.__file__).with_name("runner.py")
    ours = {} if peer.attempts else {"PYTHONPATH": str(PROJECT)}
    folder = Path(job["folder"])
    for name in ("run", "home"):
        shutil.rmtree(folder / name, ignore_errors=True)
    words = json.dumps({**job, "began": time.time()})
    command = [str(python), str(runner), words]
    said = execute(command, TIMEOUT, FLWR_HOME=str(folder / "home"), **SETTINGS, **ours)
    figures: Mapping[str, Json] = json.loads(said.splitlines()[-1])
    return figures
