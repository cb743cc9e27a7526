"""What happened to disturbed runs, and what may be said where one ended."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import psutil
from rich.console import Console
from rich.table import Table

from cfl_flower.errors import ERROR_MARK

PATIENCE = 600.0
"""Seconds that a command may take, frozen and all."""

EQUAL = "equal to the bit"
DIFFERENT = "different"
"""How a run ended, beside the reference."""


@dataclass
class Ledger:
    """What happened, counted by kind of fault or of end."""

    faults: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    """Faults that came when their process was not there, or the run had ended."""
    ends: Counter[str] = field(default_factory=Counter)
    resumes: int = 0
    lost: int = 0
    problems: list[str] = field(default_factory=list)

    def note(self, kind: str, happened: bool) -> None:
        """Count a fault."""
        (self.faults if happened else self.missed)[kind] += 1

    def judge(self, name: str, found: Sequence[str]) -> None:
        """Count the end of a run of which something is wrong, or nothing."""
        self.ends[DIFFERENT if found else EQUAL] += 1
        self.problems += [f"{name}: {each}" for each in found]

    def show(self, kinds: Iterable[str], console: Console) -> None:
        """Print all of it."""
        table = Table(title="faults", title_justify="left")
        for heading in ("kind", "happened", "came too late or found nothing"):
            table.add_column(heading)
        for kind in kinds:
            table.add_row(kind, str(self.faults[kind]), str(self.missed[kind]))
        console.print(table)
        ends = ", ".join(f"{count} {end}" for end, count in self.ends.items())
        console.print(f"runs: {ends}; {self.resumes} resumes, {self.lost} results lost")
        for problem in self.problems:
            console.print(f"PROBLEM {problem}", style="red", markup=False)


def judge_words(code: int, said: str) -> str:
    """Return what is wrong with how a command ended: it completes, or says one line."""
    lines = said.strip().splitlines()
    if code in (0, -signal.SIGKILL):
        return ""
    if len(lines) == 1 and lines[0].startswith(ERROR_MARK):
        return ""
    return f"exit code {code} with {len(lines)} lines: {lines[-1:]}"


def family(root: psutil.Process) -> list[psutil.Process]:
    """Return a process and all that it started, directly or not."""
    return [root, *root.children(recursive=True)]


def kill_all(processes: Iterable[psutil.Process]) -> None:
    """Kill processes with -9, and wait until they have ended."""
    listed = list(processes)
    for each in listed:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    for each in listed:
        wait_for_end(each)


def wait_for_end(process: psutil.Process) -> None:
    """Wait until a process has ended, and leave its exit code to its parent."""
    end = time.monotonic() + PATIENCE
    with suppress(psutil.NoSuchProcess):
        while process.status() != psutil.STATUS_ZOMBIE and time.monotonic() < end:
            time.sleep(0.05)
