"""Many runs, several at a time, each in a process of its own: kept, resumed, watched.

`compare` and `reproduce` start this module with the overrides of one run in a line, or,
where a SuperLink is to be shared, of several runs in several lines.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from cfl_flower import plugins
from cfl_flower.config.compose import RunConfig, compose_sweep
from cfl_flower.errors import ERROR_MARK
from cfl_flower.runs.callbacks import Verbosity, clock
from cfl_flower.runs.directory import FAILURE
from cfl_flower.runs.reading import finished
from cfl_flower.seeding import usable_cores
from cfl_flower.server_app import VERBOSITY
from simulations.run import overrides_elsewhere, run
from simulations.superlink import PROJECT, die_with_parent, run_on_superlink
from simulations.terminal import command, make_error_console

LOG = "log.txt"
"""What a process said, in the folder of its run, or above those of its runs."""

PARENT = "CFL_FLOWER_PARENT"
"""Environment variable: the process with which a process of ours ends."""

LOOK_EVERY = 0.5
"""Seconds between looks at the runs' files."""


@dataclass(frozen=True)
class Job:
    """A run, and what it is called where it is watched."""

    label: str
    config: RunConfig

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return Path(self.config.output_dir)

    @property
    def line(self) -> str:
        """Its overrides in a line; in its folder it goes on where it was."""
        return shlex.join([*overrides_elsewhere(self.config), "resume=true"])

    def rounds(self) -> int:
        """Count the rounds that are on disk."""
        try:
            return (self.folder / "rounds.jsonl").read_bytes().count(b"\n")
        except FileNotFoundError:
            return 0

    def time(self) -> str:
        """Return how long its rounds took, once it is complete."""
        summary = finished(self.config)
        return clock(summary["seconds"]) if summary else "-"

    def failure(self, last_line: str) -> str:
        """Return why it failed, or nothing if it is complete."""
        if finished(self.config):
            return ""
        path = self.folder / FAILURE
        return path.read_text(encoding="utf-8").strip() if path.exists() else last_line


@dataclass
class Watch:
    """Shows how far all runs are: one display on a terminal, else a line per run."""

    title: str
    jobs: Sequence[Job]
    verbosity: Verbosity
    console: Console = field(default_factory=make_error_console)
    _read: dict[Path, int] = field(default_factory=dict, init=False)
    _done: dict[str, int] = field(default_factory=dict, init=False)
    _reported: list[str] = field(default_factory=list, init=False)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Show the display while the runs go on."""
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("rounds"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
            disable=self.verbosity is Verbosity.QUIET or not self.console.is_terminal,
            speed_estimate_period=600.0,
        )
        with self._progress:
            total = sum(job.config.rounds for job in self.jobs)
            self._bar = self._progress.add_task(self.title, total=total)
            self._done = {job.label: job.rounds() for job in self.jobs}
            yield

    def look(self, units: Sequence[Sequence[Job]]) -> None:
        """Read how far the runs of the processes are, and tell which have ended."""
        busy, ended = [], []
        for job in chain.from_iterable(units):
            done, total = job.rounds(), job.config.rounds
            self._done[job.label] = done
            if 0 < done < total:
                busy.append(f"{job.label} {done}/{total}")
            elif done >= total and finished(job.config):
                ended.append(job)
        words = "; ".join([self.title, *busy[:4]])
        self._progress.update(
            self._bar, completed=sum(self._done.values()), description=words
        )
        if self.verbosity is Verbosity.VERBOSE:
            for unit in units:
                self._relay(_log_of(unit))
        for job in ended:  # after its own last line
            self.tell(job)

    def tell(self, job: Job, reason: str = "") -> None:
        """Say once that a run has ended, and why if it failed."""
        if job.label in self._reported:
            return
        self._reported.append(job.label)
        if self.verbosity is Verbosity.QUIET:
            return
        end = f"failed: {reason}" if reason else f"done, {job.time()}"
        line = f"[{len(self._reported)}/{len(self.jobs)}] {job.label} {end}"
        style = "red" if reason else None
        self._progress.console.print(line, style=style, markup=False, highlight=False)

    def _relay(self, log: Path) -> None:
        if not log.exists():
            return
        with log.open(encoding="utf-8") as lines:
            lines.seek(self._read.get(log, 0))
            for line in lines.read().splitlines():
                self._progress.console.print(line, markup=False, highlight=False)
            self._read[log] = lines.tell()


def at_once(configs: Sequence[RunConfig], asked: int | None = None) -> int:
    """Return how many runs go on at a time: as asked, or as there are processors."""
    processes = max((c.workers for c in configs if c.engine == "ray"), default=1)
    return asked or max(1, usable_cores() // processes)


def carry_out(
    jobs: Sequence[Job], at_a_time: int, verbosity: Verbosity, title: str
) -> dict[str, str]:
    """Carry out what is not finished; what was interrupted goes on.

    Each job has a folder of its own, and each process one job; if it is one process at
    a time, runs on Ray share one, with a SuperLink and its start. Returns why runs
    failed, by their output_dir.
    """
    waiting = [job for job in jobs if not finished(job.config)]
    if not waiting:
        return {}
    watch = Watch(title, waiting, verbosity)
    threads = ThreadPoolExecutor(at_a_time)
    try:
        with watch.open():
            units = _units(waiting, at_a_time)
            futures = {threads.submit(work, unit, verbosity): unit for unit in units}
            return _follow(futures, watch)
    finally:
        threads.shutdown(cancel_futures=True)


def _units(jobs: Sequence[Job], at_a_time: int) -> list[list[Job]]:
    """Divide jobs into processes: those on Ray share one, if only one can be."""
    if at_a_time > 1:
        return [[job] for job in jobs]
    shared: dict[tuple[int, float], list[Job]] = {}
    for job in jobs:
        if job.config.engine == "ray":
            place = job.config.workers, job.config.gpus_per_worker
            shared.setdefault(place, []).append(job)
    alone = [[job] for job in jobs if job.config.engine != "ray"]
    return [*shared.values(), *alone]


Futures = dict["Future[str]", list[Job]]


def _follow(futures: Futures, watch: Watch) -> dict[str, str]:
    """Watch processes until all have ended; return the reasons of failures."""
    left, reasons = set(futures), {}
    while left:
        ended, left = wait(left, LOOK_EVERY, FIRST_COMPLETED)
        begun = [each for each in (*left, *ended) if each.running() or each.done()]
        watch.look([futures[each] for each in begun])
        for future in ended:
            for job in futures[future]:
                if reason := job.failure(future.result()):
                    reasons[job.config.output_dir] = reason
                    watch.tell(job, reason)
    return reasons


def _log_of(jobs: Sequence[Job]) -> Path:
    return Path(os.path.commonpath([job.folder for job in jobs])) / LOG


def work(jobs: Sequence[Job], verbosity: Verbosity = Verbosity.NORMAL) -> str:
    """Carry out runs in a process of their own, which may die in any way.

    Returns its last line, and its exit code.
    """
    log = _log_of(jobs)
    for job in jobs:
        job.folder.mkdir(parents=True, exist_ok=True)
        (job.folder / FAILURE).unlink(missing_ok=True)
    lines = "\n".join(job.line for job in jobs)
    # The log of a quiet comparison still tells the rounds.
    loud = Verbosity.VERBOSE if verbosity is Verbosity.VERBOSE else Verbosity.NORMAL
    environment = {
        **os.environ,
        **plugins.environment(),
        PARENT: str(os.getpid()),
        VERBOSITY: loud,
    }
    with log.open("w", encoding="utf-8") as file:
        done = subprocess.run(
            [sys.executable, "-m", "simulations.jobs", lines],
            stdout=file,
            stderr=subprocess.STDOUT,
            check=False,
            cwd=PROJECT,
            env=environment,
        )
    words = log.read_text(encoding="utf-8").splitlines()
    last = next((line for line in reversed(words) if line.strip()), "no word")
    return f"{last.removeprefix(ERROR_MARK)} (exit code {done.returncode})"


@command
def main(arguments: Sequence[str]) -> int:
    """Carry out one run, or several on one SuperLink, and return the exit code."""
    die_with_parent()
    if os.environ.get(PARENT, str(os.getppid())) != str(os.getppid()):
        return 1
    (lines,) = arguments
    first, *others = compose_sweep(lines)
    if others:
        run_on_superlink(lines, first.workers, first.gpus_per_worker)
    else:
        run(first)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
