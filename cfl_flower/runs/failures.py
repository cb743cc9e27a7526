"""What is written of the exceptions of simulated clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from cfl_flower.errors import printable
from cfl_flower.types import ClientId, Trace

FAILURES = "failures.log"
"""File with the tracebacks."""


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
