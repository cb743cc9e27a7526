"""Who holds what in each period of a run, in numbers: what a preview shows."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from operator import ne
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cfl_flower.types import FloatArray, IntArray

if TYPE_CHECKING:
    from cfl_flower.data.worlds.stream import Stream
    from cfl_flower.data.worlds.view import View

ROWS = 12
"""Periods in the table."""

MOST_LATE = 5
"""Rounds of changes without effect that are named."""


class Period(NamedTuple):
    """Some rounds in which nothing changes."""

    start: int
    end: int
    """The last round."""
    counts: IntArray
    """Training samples by label, as the client calls it, or by distribution: shape
    (clients, columns)."""
    prints: Sequence[bytes]
    """A fingerprint of each client's samples, labels and rotation."""
    truth: IntArray
    """The true concept of each client, shape (clients,)."""
    moved: int | None = None
    """Clients whose true concept is not that of the period before; None at first."""
    changed: int | None = None
    """Clients whose data (samples, labels or rotation) are not those before."""

    @property
    def concepts(self) -> int:
        """The number of different true concepts."""
        return len(np.unique(self.truth))

    @property
    def rounds(self) -> str:
        """Its rounds in words."""
        if self.start == self.end:
            return f"round {self.start:,}"
        return f"rounds {self.start:,}–{self.end:,}"

    @property
    def sizes(self) -> IntArray:
        """The training samples of each client, shape (clients,)."""
        return self.counts.sum(axis=1)


class Preview(NamedTuple):
    """The numbers of a preview."""

    total: int
    """Periods of the run."""
    periods: list[Period]
    """Periods, at most `ROWS`, the last one included."""
    kind: str
    """What samples are counted by: ``label``, or the ``rotation`` of mixed ones."""
    names: list[str]
    """The labels or rotations, a column of the counts each."""
    notes: list[str]
    """Notes for the user, a line each."""

    @property
    def ends(self) -> list[Period]:
        """The first period and the last, or the only one."""
        return [self.periods[0], *self.periods[1:][-1:]]


def shown_periods(count: int) -> list[int]:
    """Return which periods the table shows: all, or the first ones and the last."""
    return list(range(count)) if count <= ROWS else [*range(ROWS - 1), count - 1]


def fingerprint(view: View) -> bytes:
    """Return what differs wherever a client's data differ."""
    arrays = (view.train_indices, view.labels, view.test_indices, view.test_labels)
    sizes = repr((view.degrees, *map(len, arrays))).encode()
    content = b"".join([sizes, *(array.tobytes() for array in arrays)])
    for part in ("train", "test"):
        for form, _, places in view.by_form(part):
            content += repr(form).encode() + places.tobytes()
    return blake2b(content, digest_size=16).digest()


def tally(view: View) -> IntArray:
    """Count training samples by the distributions of a mixture, or by labels."""
    if len(view.turns) > 1:
        return np.bincount(view.train_parts, minlength=len(view.turns))
    return np.bincount(view.labels, minlength=len(view.relabel))


def look(stream: Stream, start: int, end: int, before: Period | None) -> Period:
    """Look at all clients in a period, and at how they differ from the one before."""
    truth = stream.timeline.concepts(start)
    views = [stream.view(client, start) for client in range(len(truth))]
    counts = np.stack([tally(view) for view in views])
    prints = [fingerprint(view) for view in views]
    if before is None:
        return Period(start, end, counts, prints, truth)
    moved = int((truth != before.truth).sum())
    changed = sum(map(ne, prints, before.prints))
    return Period(start, end, counts, prints, truth, moved, changed)


def preview(stream: Stream, total: int) -> Preview:
    """Collect the numbers of a run with so many rounds in total.

    Only the periods of the table and those before them are looked at client by client.
    Samples that cannot be dealt as the partition wants are a `ConfigError`.
    """
    timeline = stream.timeline
    starts = timeline.shown(total)
    ends = [server_round - 1 for server_round in starts[1:]] + [total]
    shown = shown_periods(len(starts))
    needed = sorted({*shown, *(number - 1 for number in shown if number)})
    seen: dict[int, Period] = {}
    # One after the other: the timeline keeps only a few.
    for number in needed:
        before = seen.get(number - 1)
        seen[number] = look(stream, starts[number], ends[number], before)
    periods = [seen[number] for number in shown]
    view = stream.view(0, 1)
    kind = "label"
    names = [str(label) for label in range(len(view.relabel))]
    if len(view.turns) > 1:
        kind = "rotation"
        names = [f"{turn:.4g}°" for turn in view.turns]
    return Preview(len(starts), periods, kind, names, notes(stream, total))


def notes(stream: Stream, total: int) -> list[str]:
    """Return what a user should know of a run's data, a line each."""
    lines = []
    # The round after the last is that of a prequential run's last test.
    if late := [str(each) for each in stream.timeline.changes if each > total + 1]:
        more = ", …" if len(late) > MOST_LATE else ""
        rounds = ", ".join(late[:MOST_LATE]) + more
        lines.append(f"After the last round, so without effect: changes at {rounds}")
    if len(stream.timeline.shown(total)) == 1:
        lines.append("Nothing changes in this run")
    return lines + stream.notes()


def shares(counts: IntArray) -> FloatArray:
    """Return each client's label distribution; 0 everywhere for one without samples."""
    sums: FloatArray = np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return counts / sums
