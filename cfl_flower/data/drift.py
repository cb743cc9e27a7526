"""When the world changes, and for whom."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from cfl_flower.data.partition import Layout, Partition
from cfl_flower.seeding import generator
from cfl_flower.settings import require, require_fraction


class Drift(Protocol):
    """Settings of a schedule of changes."""

    @property
    def rounds(self) -> list[int]:
        """The rounds whose data differ from those of the round before."""

    def layouts(
        self, partition: Partition, clients: int, classes: int, seed: int
    ) -> list[Layout]:
        """Return the layout of each period between two changes."""


@dataclass(frozen=True)
class Regroup:
    """Label-distribution drift: clients go to label groups that did not exist before.

    Attributes
    ----------
    rounds : list of int
        The rounds at whose start the data change; empty for no drift.
    fraction : float
        Share of clients that change at each event, chosen at random.
    """

    rounds: list[int] = field(default_factory=lambda: [13, 25])
    fraction: float = 1.0

    def __post_init__(self) -> None:
        require(
            list(self.rounds) == sorted(set(self.rounds))
            and all(round >= 2 for round in self.rounds),
            "drift.rounds",
            self.rounds,
            "ascending rounds of at least 2",
        )
        require_fraction("drift.fraction", self.fraction)

    def layouts(
        self, partition: Partition, clients: int, classes: int, seed: int
    ) -> list[Layout]:
        """Draw a fresh layout for each period; a client outside of it keeps its own."""
        layouts: list[Layout] = []
        for period in range(len(self.rounds) + 1):
            rng = generator(seed, "layout", period)
            fresh = partition.layout(clients, classes, layouts, rng)
            if layouts:
                fresh = self._merge(layouts[-1], fresh, rng)
            layouts.append(fresh)
        return layouts

    def _merge(self, old: Layout, fresh: Layout, rng: np.random.Generator) -> Layout:
        """Append the fresh distributions to the old ones and move the drifted."""
        clients = len(old.concepts)
        drifted = rng.permutation(clients) < round(self.fraction * clients)
        moved = fresh.concepts + len(old.distributions)
        return replace(
            fresh,
            distributions=np.concatenate([old.distributions, fresh.distributions]),
            concepts=np.where(drifted, moved, old.concepts),
        )


def period_of(rounds: list[int], round: int) -> int:
    """Return how many changes have happened by a round.

    Examples
    --------
    >>> [period_of([16, 31], round) for round in (1, 15, 16, 30, 31)]
    [0, 0, 1, 1, 2]
    """
    return bisect_right(rounds, round)
