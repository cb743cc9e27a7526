"""After every round: checkpoints, progress, and what simulated clients raised."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TypeAlias

from rich.console import Console
from rich.text import Text

from cfl_flower.errors import printable
from cfl_flower.runs.checkpoint import Checkpoint
from cfl_flower.runs.console import Verbosity, clock
from cfl_flower.runs.directory import FAILURES
from cfl_flower.runs.record import ClientRow, RoundRecord, RunLines
from cfl_flower.state import ClusteredState
from cfl_flower.types import ClientId, Json, Trace

LOWER = ("loss", "calibration")
"""Measures of which the lowest value is the best."""

RECENT = 100
"""Rounds from whose mean time the remaining time is estimated."""

Rows: TypeAlias = Sequence[ClientRow]

Callback: TypeAlias = Callable[[RoundRecord, Rows, ClusteredState], None]
"""Called after every round; a method itself never prints or writes."""


@dataclass
class BestCheckpoint:
    """Keeps the checkpoint with the best value of a measure.

    A round is offered after its checkpoint is saved, and again where a run goes on from
    it: whenever the process is killed, the best is one of the rounds that count.
    """

    checkpoint: Checkpoint
    measure: str | None
    """Its name in the line of a round; None to keep nothing."""
    rounds: InitVar[RunLines] = ()
    """The lines of the rounds that are done, of which one may be kept already."""
    state: InitVar[ClusteredState | None] = None
    """The state after them."""

    def __post_init__(self, rounds: RunLines, state: ClusteredState | None) -> None:
        self._best = -math.inf
        if self.checkpoint.exists():
            kept = self.checkpoint.read_header()["round"]
            values = [self._value(row) for row in rounds if row["round"] == kept]
            self._best = max(values, default=-math.inf)
        if rounds and state is not None:
            self.offer(rounds[-1], state)

    def _value(self, row: Mapping[str, Json]) -> float:
        found = row.get(self.measure or "")
        if found is None:
            return -math.inf
        return float(-found if self.measure in LOWER else found)

    def offer(self, row: Mapping[str, Json], state: ClusteredState) -> None:
        """Keep the state after a round if its line has the best value so far."""
        if self._value(row) > self._best:
            self._best = self._value(row)
            self.checkpoint.save(row["round"], state)


@dataclass
class Checkpointer:
    """Saves the state every few rounds, and after the last.

    Runs after the rows are written: a resume can drop rows newer than the checkpoint,
    but not restore missing ones.
    """

    checkpoint: Checkpoint
    every: int
    last: int
    best: BestCheckpoint

    def __call__(self, record: RoundRecord, rows: Rows, state: ClusteredState) -> None:
        """Save the state if a checkpoint is due."""
        if record.round % self.every == 0 or record.round == self.last:
            self.checkpoint.save(record.round, state)
            self.best.offer(record.row(), state)


@dataclass
class Progress:
    """Prints a line per round."""

    console: Console
    strategy: str
    rounds: int
    verbosity: Verbosity = Verbosity.NORMAL
    """Quiet prints nothing."""
    traced: bool = False
    """Whether a `FailureLog` tells what clients raised."""

    def __post_init__(self) -> None:
        """Begin before the first round."""
        phases = ("query", "train", "evaluate") if self.traced else ()
        self._told = {(phase, "raised") for phase in phases}
        self._seconds: deque[float] = deque(maxlen=RECENT)
        self._begun = False

    def __call__(self, record: RoundRecord, rows: Rows, state: ClusteredState) -> None:
        """Show the round."""
        # The first round starts the workers.
        if self._begun and record.seconds is not None:
            self._seconds.append(record.seconds)
        self._begun = True
        if self.verbosity is Verbosity.QUIET:
            return
        for each in record.failures:
            kind = each.phase, each.reason
            if kind not in self._told:
                where = f"round {record.round}, {each.phase}, client {each.client}"
                self._print(f"{where}: {each.reason}: {each.detail}", "yellow")
            self._told.add(kind)
        self._print(self.line(record))

    def _print(self, line: str, style: str = "") -> None:
        self.console.print(Text(line, style), soft_wrap=True)

    def line(self, record: RoundRecord) -> str:
        """Return the line of a round, without what was not measured."""
        width = len(str(self.rounds))
        parts = [f"{self.strategy:>9}", f"round {record.round:>{width}}/{self.rounds}"]
        if record.accuracy is not None and record.loss is not None:
            parts.append(f"accuracy {record.accuracy:6.1%}  loss {record.loss:.3f}")
        parts.append(f"clusters {record.num_clusters}")
        if record.drifted:
            parts.append(f"drifted {record.drifted}  moved {record.moved}")
        if record.reclustered:
            parts.append("re-clustered")
        if record.failures:
            parts.append(f"failures {len(record.failures)}")
        if record.seconds is not None:
            parts.append(f"{record.seconds:.2f} s")
        if self._seconds and record.round < self.rounds:
            left = (self.rounds - record.round) * fmean(self._seconds)
            parts.append(f"{clock(left)} left")
        return "  ".join(parts)


@dataclass
class FailureLog:
    """Writes the first traceback of each kind to a run's folder, and says so."""

    folder: Path
    warn: Callable[[str], None]
    whole: bool = False
    """Whether the traceback is printed as well."""
    _kinds: set[str] = field(default_factory=set, init=False)

    def __call__(
        self, client: ClientId, phase: str, server_round: int, trace: Trace
    ) -> None:
        """Write down the first exception of each kind."""
        if trace.kind in self._kinds:
            return
        self._kinds.add(trace.kind)
        where = f"round {server_round}, {phase}, client {client}"
        path = self.folder / FAILURES
        with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"{where}: {trace.kind}\n{trace.text}\n")
        if self.whole:
            self.warn(trace.text.rstrip())
        said = printable(trace.text.rstrip().rpartition("\n")[2])
        self.warn(f"{where}: {said} ({trace.kind}); its traceback is in {path}")
