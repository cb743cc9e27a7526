"""What arrives part by part, and may be forgotten again: samples, or labels."""

from __future__ import annotations

from typing import Literal

import numpy as np

from cfl_flower.data.worlds.drift import Change, Occasion
from cfl_flower.data.worlds.world import AT_RANDOM, BY_RANK, BY_TIME, World, alter
from cfl_flower.seeding import generator
from cfl_flower.settings import Count, require, settings
from cfl_flower.types import BoolArray


@settings("drift")
class Arrival(Change):
    """Something arrives with each event, part by part, and may be forgotten again.

    The first parts are there in round 1, whenever the others come.
    """

    window: Count | None = None
    """Rounds for which a part is remembered, as the nearest number of parts; as much is
    there at first. A number between 0 and 1 is a share of the run. null: for ever, and
    one part is there at first."""

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = self.window is None or self.every is not None
        allowed = "null, or at least 1 together with drift.every"
        require(ok, "drift.window", self.window, allowed)
        require(self.fraction == 1, "drift.fraction", self.fraction, "1, ids or modulo")

    @property
    def kept(self) -> int:
        """Parts that are there at first, and remembered if not all are."""
        if self.window is None or self.every is None:
            return 1
        return max(1, int(self.window / self.every + 0.5))

    def times(self, total: int) -> list[int]:
        """Return the rounds at whose start it happens, the first of them included."""
        return sorted({1, *super().times(total)})

    def present(self, occurrence: int) -> tuple[int, int]:
        """Return the number of the first part that is there, and the last one's + 1."""
        return (occurrence if self.window else 0), occurrence + self.kept


ORDERS = {"random": AT_RANDOM, "own": BY_RANK, "time": BY_TIME}


@settings("drift")
class Release(Arrival):
    """Samples arrive in equal parts: FlexCFL's "incremental", Fielding's streams.

    After the last part nothing more arrives, and nothing is forgotten.
    """

    first: Count = 1
    """The round from which `every` counts."""
    periods: Count = 4
    """Number of the parts."""
    order: Literal["random", "own", "time"] = "random"
    """A client's training samples in any order, while its test samples are all there;
    or training and test samples by the time when they were taken: as many of a client's
    at a time, or those of as long a time, the same for all clients."""

    def change(self, world: World, chosen: BoolArray, occasion: Occasion) -> World:
        """Return the world after it."""
        start, end = self.present(occasion.occurrence)
        late = max(0, end - self.periods)
        since = max(0, start - late) / self.periods
        until = (end - late) / self.periods
        order = ORDERS[self.order]
        return alter(world, chosen, since=since, until=until, order=order)


@settings("drift")
class LabelBuckets(Arrival):
    """Labels stream in by buckets and are forgotten again: Fielding on Open Images.

    Each client's labels are split into buckets at random, one label in each if there
    are fewer. With each event the next bucket arrives, and after the last the first.
    """

    buckets: Count = 10
    """Number of the parts that a client's labels are split into."""

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = self.kept <= self.buckets
        most = f"rounds in which at most the {self.buckets} buckets arrive"
        require(ok, "drift.window", self.window, most)

    def change(self, world: World, chosen: BoolArray, occasion: Occasion) -> World:
        """Return the world after it."""
        # The same buckets in every round, over the labels that a client holds.
        rng = generator(occasion.seed, f"buckets/{occasion.number}")
        points = rng.random(world.groups.shape)
        held = occasion.held(world)
        rank = np.where(held, points, 2.0).argsort(axis=1).argsort(axis=1)
        count = held.sum(axis=1, keepdims=True)
        buckets = np.minimum(self.buckets, np.maximum(count, 1))
        bucket = rank * buckets // np.maximum(count, 1)
        start, end = self.present(occasion.occurrence)
        arrived = (bucket - start) % buckets < end - start
        return alter(world, chosen, visible=arrived)
