"""When simulated clients are there: who joins, and who leaves.

All functions are pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cfl_flower.seeding import generator
from cfl_flower.types import BoolArray, IntArray

FOREVER = 2**31
"""The last round of a client that does not leave."""


@dataclass(frozen=True, eq=False)
class Presence:
    """The rounds in which n clients are there; both arrays have shape (n,)."""

    first: IntArray
    last: IntArray
    """Included."""

    def there(self, number: int) -> BoolArray:
        """Return who is there in a round, shape (n,).

        Examples
        --------
        >>> presence = Presence(first=np.array([1, 2, 5]), last=np.array([9, 3, 6]))
        >>> presence.there(2), presence.there(4)
        (array([ True,  True, False]), array([ True, False, False]))
        """
        return (self.first <= number) & (number <= self.last)


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
    return Presence(first, last)
