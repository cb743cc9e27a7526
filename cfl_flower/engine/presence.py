"""When simulated clients are there: who joins, leaves, or comes and goes by a trace.

All functions are pure. A `Presence` has spans of rounds; a client may have several.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cfl_flower.data.reading.files import intact, table
from cfl_flower.seeding import generator
from cfl_flower.types import BoolArray, IntArray

COLUMNS = ("client", "first", "last")
"""Of a trace: a client's number, and the rounds from which to which it is there."""

FOREVER = 2**31
"""The last round of a client that does not leave."""


@dataclass(frozen=True, eq=False)
class Presence:
    """Spans of rounds in which clients are there; all arrays have shape (m,)."""

    count: int
    """How many clients there are in all, n."""
    clients: IntArray
    first: IntArray
    last: IntArray
    """Included."""

    def there(self, number: int) -> BoolArray:
        """Return who is there in a round, shape (n,).

        Examples
        --------
        >>> spans = [np.array(each) for each in ([0, 1, 1], [1, 2, 5], [9, 3, 6])]
        >>> presence = Presence(3, *spans)
        >>> presence.there(2), presence.there(4)
        (array([ True,  True, False]), array([ True, False, False]))
        """
        found = np.zeros(self.count, bool)
        found[self.clients[(self.first <= number) & (number <= self.last)]] = True
        return found

    def joined(self) -> IntArray:
        """Return the round in which each client is there for the first time, (n,)."""
        found = np.full(self.count, FOREVER)
        np.minimum.at(found, self.clients, self.first)
        return found


@dataclass(frozen=True)
class Moves:
    """Clients that join, or leave, in some rounds."""

    rounds: Sequence[int]
    share: float
    """Of all clients, in all of these rounds together."""

    def groups(self, rows: IntArray, count: int) -> Iterator[tuple[int, IntArray]]:
        """Yield each round and those of some clients who move in it."""
        moving = rows[: round(self.share * count)]
        parts = np.array_split(moving, max(len(self.rounds), 1))
        yield from zip(sorted(self.rounds), parts, strict=False)


def draw_presence(count: int, joins: Moves, leaves: Moves, seed: int) -> Presence:
    """Draw who joins and who leaves.

    Those who join are not there before, those who leave were there from the start: a
    client does one of both at most.

    Examples
    --------
    >>> presence = draw_presence(10, Moves([5], 0.2), Moves([7, 8], 0.4), seed=0)
    >>> [int(presence.there(number).sum()) for number in (1, 4, 5, 7, 8, 9)]
    [8, 8, 10, 8, 6, 6]
    """
    order = generator(seed, "presence").permutation(count)
    first = np.ones(count, np.int64)
    last = np.full(count, FOREVER)
    for number, group in joins.groups(order, count):
        first[group] = number
    for number, group in leaves.groups(order[::-1], count):
        last[group] = number - 1
    return Presence(count, np.arange(count), first, last)


def read_presence(path: Path, count: int) -> Presence:
    """Read a trace of ``count`` clients; one that it does not name is never there.

    Raises `ConfigError` for a file that cannot be read, a client that does not exist,
    a span that ends before it begins, and if nobody is there in round 1.
    """
    wanted = f"write {', '.join(COLUMNS)} of every span, as whole numbers"
    with intact(f"devices.presence={path}", wanted):
        rows = table(path, COLUMNS)
        numbers = [[int(row[name]) for name in COLUMNS] for row in rows]
        spans = np.array(numbers, np.int64)
        clients, first, last = spans.reshape(-1, 3).T
        if not ((clients >= 0) & (clients < count)).all():
            raise ValueError(f"a client is none of 0 to {count - 1}")
        if not ((first >= 1) & (first <= last)).all():
            raise ValueError("a span begins before round 1, or ends before it begins")
        found = Presence(count, clients, first, last)
        if not found.there(1).any():
            raise ValueError("nobody is there in round 1")
    return found
