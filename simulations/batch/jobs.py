"""Many runs, several at a time: kept, resumed, watched."""

from __future__ import annotations

import json
import shlex
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
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

from cfl_flower.environment.machine import usable_cores
from cfl_flower.errors import ERROR_MARK
from cfl_flower.run_config import RunConfig
from cfl_flower.runs.console import Verbosity, clock
from cfl_flower.runs.directory import FAILURE
from cfl_flower.runs.reading import finished
from simulations.batch.processes import end, prepare, start
from simulations.engines.choice import AUTO, engine_of, workers_of
from simulations.run import overrides_elsewhere
from simulations.shell.terminal import make_error_console

LOG = "log.txt"
"""File with the output of a run's process, in its folder."""

LOOK_EVERY = 0.2
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

    @property
    def log(self) -> Path:
        """The file of what its process says."""
        return self.folder / LOG

    def start(self, verbosity: Verbosity, cores: int) -> BaseProcess:
        """Start its process; there are some cores for it where nobody says more."""
        config = self.config
        ray = engine_of(config) == "ray"
        free = config.workers == AUTO and not config.gpus_per_worker and not ray
        return start(self.line, self.log, verbosity, cores if free else 0)

    def rounds(self) -> list[bytes]:
        """Return the lines of the rounds that are on disk."""
        path = self.folder / "rounds.jsonl"
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        return [line for line in lines if line.endswith(b"\n")]

    def time(self) -> str:
        """Return how long its rounds took, once it is complete."""
        summary = finished(self.config)
        return clock(summary["seconds"]) if summary else "-"

    def failure(self, exit_code: int | None) -> str:
        """Return why it failed, or nothing if it is complete.

        That is what the process said last, if it has not written down more.
        """
        if finished(self.config):
            return ""
        path = self.folder / FAILURE
        if path.exists():
            return path.read_text(encoding="utf-8").strip()
        words = self.log.read_text(encoding="utf-8") if self.log.exists() else ""
        lines = [line for line in words.splitlines() if line.strip()]
        last = lines[-1].removeprefix(ERROR_MARK) if lines else "no word"
        return f"{last} (exit code {exit_code})"


@dataclass
class Watch:
    """Shows how far all runs are: one display on a terminal, else a line per run."""

    title: str
    jobs: Sequence[Job]
    verbosity: Verbosity
    console: Console = field(default_factory=make_error_console)
    _read: dict[Path, int] = field(default_factory=dict, init=False)
    _ended: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        """Lay out a line for all runs, and one for each."""
        silent = self.verbosity is Verbosity.QUIET or not self.console.is_terminal
        self.display = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("rounds{task.fields[last]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
            auto_refresh=False,
            speed_estimate_period=600.0,
            disable=silent,
        )
        add = partial(self.display.add_task, last="")
        self._all = add(self.title, total=sum(job.config.rounds for job in self.jobs))
        self._lines = {
            job.label: add(
                job.label,
                start=False,
                total=job.config.rounds,
                completed=len(job.rounds()),
                visible=False,
            )
            for job in self.jobs
        }

    def look(self, running: Sequence[Job]) -> None:
        """Read how far runs are."""
        for job in running:
            self._show(job, job.rounds())
            if self.verbosity is Verbosity.VERBOSE:
                self._relay(job.log)
        done = sum(task.completed for task in self.display.tasks[1:])
        self.display.update(self._all, completed=done, refresh=True)

    def _show(self, job: Job, rounds: Sequence[bytes]) -> None:
        """Show how far a run is, in a line of its own while it goes on."""
        line = self._lines[job.label]
        self.display.update(line, completed=len(rounds))
        if rounds:
            row = json.loads(rounds[-1])
            known = row["accuracy"]
            words = "" if known is None else f", accuracy {known:.1%}"
            words += f", {row['num_clusters']} clusters"
            self.display.start_task(line)
            self.display.update(line, visible=True, last=words)

    def tell(self, job: Job, reason: str = "") -> None:
        """Say that a run has ended, and why if it failed."""
        self._ended += 1
        self.display.update(self._lines[job.label], visible=False)
        if self.verbosity is Verbosity.QUIET:
            return
        end = f"failed: {reason}" if reason else f"done, {job.time()}"
        line = f"[{self._ended}/{len(self.jobs)}] {job.label} {end}"
        style = "red" if reason else None
        self.console.print(line, style=style, markup=False, highlight=False)

    def _relay(self, log: Path) -> None:
        if not log.exists():
            return
        with log.open(encoding="utf-8") as lines:
            lines.seek(self._read.get(log, 0))
            for line in lines.read().splitlines():
                self.console.print(line, markup=False, highlight=False)
            self._read[log] = lines.tell()


def at_once(configs: Sequence[RunConfig], asked: int | None = None) -> int:
    """Return how many runs go on at a time: as asked, or as there are cores.

    Runs whose workers are left to us have one each while others wait.
    """
    named = [
        workers_of(config)
        for config in configs
        if engine_of(config) == "ray"
        or (engine_of(config) == "processes" and config.workers != AUTO)
    ]
    return asked or max(1, usable_cores() // max(named, default=1))


def carry_out(
    jobs: Sequence[Job], at_a_time: int, verbosity: Verbosity, title: str
) -> dict[str, str]:
    """Carry out what is not finished; what was interrupted goes on.

    Each job has a folder of its own. Returns why runs failed, by their output_dir.
    """
    waiting = [job for job in jobs if not finished(job.config)]
    if waiting:
        prepare()
    for job in waiting:
        job.folder.mkdir(parents=True, exist_ok=True)
        (job.folder / FAILURE).unlink(missing_ok=True)
    watch = Watch(title, waiting, verbosity)
    queue = deque(waiting)
    running: dict[BaseProcess, Job] = {}
    reasons = {}
    with watch.display:
        try:
            while queue or running:
                while queue and len(running) < at_a_time:
                    # The last ones have all cores, which others will leave.
                    cores = -(-usable_cores() // min(len(queue), at_a_time))
                    job = queue.popleft()
                    running[job.start(verbosity, cores)] = job
                wait([process.sentinel for process in running], LOOK_EVERY)
                watch.look(list(running.values()))
                for process in [each for each in running if not each.is_alive()]:
                    job = running.pop(process)
                    if reason := job.failure(process.exitcode):
                        reasons[job.config.output_dir] = reason
                    watch.tell(job, reason)
        finally:
            end(list(running))
    return reasons
