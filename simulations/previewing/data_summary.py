"""Who holds what in each period of a run, in numbers: what a preview shows."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cfl_flower.types import FloatArray, IntArray

if TYPE_CHECKING:
    from cfl_flower.data.worlds.stream import Stream
    from cfl_flower.data.worlds.view import View

ROWS = 12
"""Periods in the table."""

ROUNDS = 200
"""Periods in the ribbon of the picture."""

CLIENTS = 200
"""Clients in the picture."""


class Columns(NamedTuple):
    """What a client's samples are counted by: labels, or what a mixture is of."""

    names: list[str]
    what: str
    """What one of them is."""

    @classmethod
    def of(cls, view: View) -> Columns:
        """Return the distributions of a mixture by their rotation, or the labels."""
        if len(view.turns) > 1:
            return cls([f"{turn:.4g}°" for turn in view.turns], "rotation")
        return cls([str(label) for label in range(len(view.relabel))], "label")


class DataSummary(NamedTuple):
    """What all clients hold in one round."""

    counts: IntArray
    """Training samples by label, as the client calls it, or by distribution: shape
    (clients, columns)."""
    prints: list[bytes]
    """A fingerprint of each client's samples, labels and rotation."""
    concepts: IntArray
    """The true one of each client, shape (clients,)."""


class Period(NamedTuple):
    """Some rounds in which nothing changes."""

    start: int
    end: int
    """The last round."""
    concepts: int
    """Different true concepts."""
    moved: int | None
    """Clients whose true concept is not that of the period before; None at first."""
    changed: int | None
    """Clients whose data (samples, labels or rotation) are not those before."""
    sizes: IntArray
    """Training samples of each client, shape (clients,)."""


class Preview(NamedTuple):
    """The numbers of a preview."""

    total: int
    """Rounds of the run."""
    starts: list[int]
    """The first round of every period."""
    late: list[int]
    """Rounds of changes that come after the run."""
    periods: list[Period]
    """At most `ROWS`, the last one included."""
    columns: Columns
    """What the samples are counted by."""
    counts: list[IntArray]
    """Training samples, shape (clients, columns), in the first, the second and the last
    period, or in the first alone if there is no other."""
    sampled: list[int]
    """Starts of at most `ROUNDS` periods, evenly."""
    history: IntArray
    """The true concepts in these periods, shape (clients, len(sampled))."""
    sizes: IntArray | None
    """Training samples in these periods, of the clients in the picture, where they
    change and no concept does."""
    arriving: float | None
    """Share of the training samples that ever arrive; None where all are there."""
    idle: str
    """How many periods of a stream in time bring nothing; empty if all bring some."""


def evenly(count: int, most: int) -> list[int]:
    """Return at most so many of the numbers below ``count``, first and last included.

    Examples
    --------
    >>> evenly(9, 3)
    [0, 4, 8]
    """
    chosen = np.linspace(0, count - 1, min(count, most)).round()
    return [int(number) for number in chosen]


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
    """Count training samples by the `Columns` of a view."""
    mixed = len(view.turns) > 1
    kinds = view.train_parts if mixed else view.labels
    count = Columns.of(view).names
    return np.bincount(kinds, minlength=len(count))


def summary(stream: Stream, server_round: int) -> DataSummary:
    """Look at all clients in one round."""
    concepts = stream.timeline.concepts(server_round)
    views = (stream.view(client, server_round) for client in range(len(concepts)))
    both = [(tally(view), fingerprint(view)) for view in views]
    counts, prints = zip(*both, strict=True)
    return DataSummary(np.stack(counts), list(prints), concepts)


def summarise(
    start: int, end: int, now: DataSummary, before: DataSummary | None
) -> Period:
    """Return the numbers of one period, compared with the one before."""
    moved = None
    changed = None
    if before is not None:
        moved = int((now.concepts != before.concepts).sum())
        both = zip(now.prints, before.prints, strict=True)
        changed = sum(new != old for new, old in both)
    sizes = now.counts.sum(axis=1)
    return Period(start, end, len(np.unique(now.concepts)), moved, changed, sizes)


def preview(stream: Stream, total: int) -> Preview:
    """Collect the numbers in one walk through the rounds.

    Only the periods of the table and those before them are looked at client by client,
    of a run with so many rounds in total. Samples that cannot be dealt as the partition
    wants are a `ConfigError`.
    """
    timeline = stream.timeline
    starts = timeline.shown(total)
    count = len(starts)
    ends = [server_round - 1 for server_round in starts[1:]] + [total]
    shown = shown_periods(count)
    sampled = evenly(count, ROUNDS)
    needed = {*shown, *(number - 1 for number in shown if number)}
    seen: dict[int, DataSummary] = {}
    history = []
    for number, start in enumerate(starts):
        if number in sampled:
            history.append(timeline.concepts(start))
        if number in needed:
            seen[number] = summary(stream, start)
    rounds = [starts[number] for number in sampled]
    concepts = np.stack(history, axis=1)
    return Preview(
        total,
        starts,
        late=[change for change in timeline.changes if change > total],
        periods=[
            summarise(starts[number], ends[number], seen[number], seen.get(number - 1))
            for number in shown
        ],
        columns=Columns.of(stream.view(0, 1)),
        counts=[seen[n].counts for n in ((0, 1, count - 1) if count > 1 else (0,))],
        sampled=rounds,
        history=concepts,
        sizes=changing_sizes(stream, rounds, concepts),
        arriving=stream.arriving(),
        idle=stream.idle(),
    )


def changing_sizes(
    stream: Stream, rounds: Sequence[int], history: IntArray
) -> IntArray | None:
    """Return the training samples of the clients in the picture, if it needs them.

    It does where no concept changes but the numbers of samples do.
    """
    if (history != history[:, :1]).any():
        return None
    rows = rows_by_concept(history).tolist()
    # Round by round: the timeline keeps only a few.
    counts = [
        [len(stream.view(client, each).train_indices) for client in rows]
        for each in rounds
    ]
    sizes = np.array(counts).T
    return sizes if (sizes != sizes[:, :1]).any() else None


def rows_by_concept(history: IntArray) -> IntArray:
    """Return the clients of the picture by their first concept, then the later ones.

    Sampled only when sorted: every fifth client by id would miss whole groups of those
    that a drift chooses by id modulo 10.
    """
    order = np.lexsort(history.T[::-1])
    return order[evenly(len(order), CLIENTS)]


def shares(counts: IntArray) -> FloatArray:
    """Return each client's label distribution; 0 everywhere for one without samples."""
    sums: FloatArray = np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return counts / sums


def span(start: int, end: int) -> str:
    """Name some rounds in a row."""
    return f"round {start:,}" if start == end else f"rounds {start:,}–{end:,}"
