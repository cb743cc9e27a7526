"""What happens around the rounds of a run: files, checkpoints, a line to look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from cfl_flower.checkpoint import Checkpoint
from cfl_flower.results import ClientRow, RoundRecord, RunDirectory
from strategies.base import ClusteredState


@dataclass
class Recorder:
    """Appends every round to the run directory."""

    directory: RunDirectory

    def on_round(
        self, record: RoundRecord, rows: Sequence[ClientRow], state: ClusteredState
    ) -> None:
        """Write the round."""
        del state
        self.directory.append(record, rows)


@dataclass
class Checkpointer:
    """Saves the state every few rounds, and after the last.

    Comes after the recorder: rows that are newer than the checkpoint are dropped on
    resume, rows that are missing would be missed.
    """

    checkpoint: Checkpoint
    every: int
    last: int

    def on_round(
        self, record: RoundRecord, rows: Sequence[ClientRow], state: ClusteredState
    ) -> None:
        """Save the state if it is time."""
        del rows
        if record.round % self.every == 0 or record.round == self.last:
            self.checkpoint.save(record.round, state)


@dataclass
class Progress:
    """Prints one line per round."""

    console: Console
    strategy: str
    rounds: int

    def on_round(
        self, record: RoundRecord, rows: Sequence[ClientRow], state: ClusteredState
    ) -> None:
        """Print the round."""
        del rows, state
        self.console.print(self.line(record), highlight=False, soft_wrap=True)

    def line(self, record: RoundRecord) -> str:
        """Return the line of a round; what was not measured is left out."""
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
        return "  ".join(parts)
