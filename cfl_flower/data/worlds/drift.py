"""What changes, when, and for whom.

A change is a function from one `World` to the next: who holds what, and how it is
shown. No sample is touched; `worlds.stream` makes a client's data from a world.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from pydantic import Field

from cfl_flower.data.worlds.partition import Partition
from cfl_flower.data.worlds.world import (
    AT_RANDOM,
    BY_RANK,
    BY_TIME,
    World,
    allocate,
    alter,
    relabel_clients,
    traits,
    turned,
)
from cfl_flower.errors import ConfigError
from cfl_flower.seeding import generator
from cfl_flower.settings import Count, Fraction, Natural, require, settings
from cfl_flower.types import BoolArray, IntArray


def wished_labels(world: World, number: int) -> BoolArray:
    """Return the labels that each client wished for in an allocation, (clients, L)."""
    return world.allocations[number].layout.demand > 0


@dataclass(frozen=True)
class Occasion:
    """One time that an event happens; its random draws follow from this alone."""

    partition: Partition
    seed: int
    round: int
    number: int
    """Number of the event in its schedule."""
    occurrence: int
    """Number of earlier occurrences."""
    labels: Callable[[World, int], BoolArray] = wished_labels
    """Returns of which labels each client got samples in an allocation."""

    def held(self, world: World) -> BoolArray:
        """Return the original labels that each client holds, shape (clients, L)."""
        return world.held(self.labels)

    def draw_labels(self, count: int, classes: int) -> IntArray:
        """Return ``count`` labels, or raise a `ConfigError` if there are fewer."""
        require(count <= classes, "drift.random_labels", count, f"at most {classes}")
        return self.rng.permutation(classes)[:count]

    @cached_property
    def rng(self) -> np.random.Generator:
        """The generator of its draws."""
        return generator(self.seed, f"drift/{self.number}", self.round)


@settings("drift")
class Schedule:
    """Several events."""

    rounds: list[int] = field(default_factory=list)
    """Rounds that the events of a preset refer to; without effect of its own."""
    width: Count = 1
    """Width that the events of a preset refer to; without effect of its own."""
    steps: dict[str, Any] = field(default_factory=dict)
    """The events, or further schedules, in their order."""

    @property
    def events(self) -> Mapping[str, Change]:
        """What happens, by keys; events of one round happen in this order."""
        return {
            f"drift.steps.{name}{place.removeprefix('drift')}": event
            for name, step in self.steps.items()
            for place, event in step.events.items()
        }

    def __post_init__(self) -> None:
        ok = all(one < two for one, two in pairwise(self.rounds))
        require(ok, "drift.rounds", self.rounds, "ascending rounds")
        for name, step in self.steps.items():
            ok = isinstance(step, Change | Schedule)
            kind = type(step).__name__
            require(ok, f"drift.steps.{name}", kind, "a kind of change")


@settings("drift")
class Change(ABC):
    """One kind of event: when it happens and whom it concerns."""

    rounds: list[int] = field(default_factory=list)
    """The rounds at whose start it happens; in overrides and presets a number between
    0 and 1 is a share of the run, so that 0.5 is the first round of its second half."""
    every: Count | None = None
    """It also happens every so many rounds, from round ``first`` on; a number between 0
    and 1 is a share of the run, as in `rounds`."""
    first: Count = 2
    """The round from which `every` counts."""
    width: Count = 1
    """Rounds in which it takes place: gradually, one share of the samples after the
    other, which are the same for all clients and times. A number between 0 and 1 is a
    share of the run. A client's true concept is that of most of its samples."""
    fraction: Fraction = 1.0
    """Share of the clients it concerns, chosen at random each time."""
    ids: Annotated[list[int], Field(min_length=1)] | None = None
    """The clients it may concern."""
    modulo: Count | None = None
    """It concerns clients whose id modulo this number is one of `residues`."""
    residues: list[int] = field(default_factory=list)
    """Residues, modulo `modulo`, of the ids of the clients concerned."""

    def __post_init__(self) -> None:
        ascending = all(one < two for one, two in pairwise(self.rounds))
        ok = ascending and all(server_round >= 1 for server_round in self.rounds)
        require(ok, "drift.rounds", self.rounds, "ascending rounds of at least 1")
        ok = (self.modulo is None) == (len(self.residues) == 0)
        require(ok, "drift.residues", self.residues, "them together with drift.modulo")
        ok = all(0 <= residue < (self.modulo or 1) for residue in self.residues)
        allowed = f"numbers from 0 to below modulo={self.modulo}"
        require(ok, "drift.residues", self.residues, allowed)

    @property
    def events(self) -> Mapping[str, Change]:
        """What happens: one event."""
        return {"drift": self}

    def times(self, total: int) -> list[int]:
        """Return the rounds at whose start it happens, of ``total`` rounds."""
        regular = range(self.first, total + 1, self.every) if self.every else ()
        return sorted({*self.rounds, *regular})

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise `ConfigError` if it does not fit inputs of a shape: most fit any."""
        del shape

    def apply(self, world: World, occasion: Occasion) -> World:
        """Draw whom it concerns and return the world after it."""
        chosen = self._choose(world.clients, occasion.rng)
        try:
            return self.change(world, chosen, occasion)
        except ValueError as error:
            if "read-only" not in str(error):
                raise
            raise ConfigError(
                f"drift: {type(self).__name__}.change writes into an array of the "
                "world before; return a new one, as alter(world, chosen, ...) does"
            ) from error

    @abstractmethod
    def change(self, world: World, chosen: BoolArray, occasion: Occasion) -> World:
        """Return the world after it, for some clients, a mask of shape (clients,)."""

    def candidates(self, clients: int) -> BoolArray:
        """Return whom it may concern, shape (clients,)."""
        able = np.ones(clients, bool)
        if self.ids is not None:
            ok = all(0 <= client < clients for client in self.ids)
            require(ok, "drift.ids", self.ids, f"clients from 0 to {clients - 1}")
            able = np.isin(np.arange(clients), self.ids)
        if self.modulo is not None:
            able &= np.isin(np.arange(clients) % self.modulo, self.residues)
        return able

    def _choose(self, clients: int, rng: np.random.Generator) -> BoolArray:
        candidates = np.flatnonzero(self.candidates(clients))
        count = round(self.fraction * len(candidates))
        chosen = np.zeros(clients, bool)
        chosen[rng.permutation(candidates)[:count]] = True
        return chosen


Drift: TypeAlias = Schedule | Change
"""A schedule of changes, or a single one."""


@settings("drift")
class Regroup(Change):
    """Label distributions are replaced by those of a new layout of the partition.

    With label groups: clients go to label groups that did not exist before, or are
    spread anew over those that did where the labels allow no others. With mixtures: a
    new mixture and new samples, the main distribution remains.
    """

    def change(self, world: World, chosen: BoolArray, occasion: Occasion) -> World:
        """Return the world after it."""
        layout = occasion.partition.checked_layout(
            world.clients, world.classes, world.allocations, occasion.seed
        )
        return allocate(world, layout, chosen) if chosen.any() else world


@settings("drift")
class Relabel(Change):
    """Concept drift: labels get other names; what is not swapped keeps its own."""

    swaps: list[list[int]] = field(default_factory=list)
    """Labels that change names with each other. The same swap again undoes it."""
    permutation: list[int] = field(default_factory=list)
    """New label of each of the L labels; empty for no permutation."""
    wrap: bool = False
    """Labels in `swaps` beyond the last one count on from the first, so that a preset
    fits datasets with fewer labels; with two of them its groups would not differ."""
    random_swaps: Natural = 0
    """Pairs of labels that change names, drawn for each client among those it holds."""
    random_labels: Natural = 0
    """Labels, common to all, whose names each client deals out among them (FLUX)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for swap in self.swaps:
            ok = len(swap) == 2 and swap[0] != swap[1]
            require(ok, "drift.swaps", self.swaps, "pairs of two labels")
        drawn = self.random_swaps or self.random_labels
        ok = bool(self.swaps or self.permutation or drawn)
        allowed = "pairs of labels, or a permutation, random_swaps or random_labels"
        require(ok, "drift.swaps", self.swaps, allowed)

    def change(self, world: World, chosen: BoolArray, occasion: Occasion) -> World:
        """Return the world after it."""
        world = relabel_clients(world, chosen, self._names(world.classes))
        names = np.tile(np.arange(world.classes), (world.clients, 1))
        if self.random_swaps:
            # Labels that a client holds come first.
            points = occasion.rng.random(names.shape) + ~occasion.held(world)
            pairs = points.argsort(axis=1)[:, : 2 * self.random_swaps]
            swapped = pairs.reshape(world.clients, -1, 2)[:, :, ::-1]
            np.put_along_axis(names, pairs, swapped.reshape(pairs.shape), axis=1)
        if self.random_labels:
            among = occasion.draw_labels(self.random_labels, world.classes)
            names[:, among] = occasion.rng.permuted(names[:, among], axis=1)
        return relabel_clients(world, chosen, names)

    def _names(self, classes: int) -> IntArray:
        names = np.arange(classes)
        if self.permutation:
            ok = sorted(self.permutation) == list(range(classes))
            allowed = f"each label from 0 to {classes - 1} once"
            require(ok, "drift.permutation", self.permutation, allowed)
            names = np.array(self.permutation)
        allowed = "a dataset with at least 3 labels, or drift=concept_half"
        require(classes > 2 or not self.wrap, "drift.wrap", "true", allowed)
        for labels in self.swaps:
            swap = [label % classes for label in labels] if self.wrap else labels
            ok = all(0 <= label < classes for label in swap)
            allowed = f"labels from 0 to {classes - 1}"
            require(ok and swap[0] != swap[1], "drift.swaps", self.swaps, allowed)
            names[swap] = names[swap[::-1]]
        ok = 2 * self.random_swaps <= classes
        allowed = f"at most half of the {classes} labels"
        require(ok, "drift.random_swaps", self.random_swaps, allowed)
        return names


@settings("drift")
class Restore(Change):
    """Back again: clients hold their first samples, by the labels of then.

    After an exchange it takes all clients, or samples have two owners.
    """

    def change(self, world: World, chosen: BoolArray, occasion: Occasion) -> World:
        """Return the world after it."""
        first = occasion.partition.begin(world.clients, world.classes, occasion.seed)
        return alter(world, chosen, **traits(first))


@settings("drift")
class Rotate(Change):
    """Covariate drift: images are turned counter-clockwise."""

    degrees: float = 90.0
    """Angle by which images are turned."""

    def change(self, world: World, chosen: BoolArray, occasion: Occasion) -> World:
        """Return the world after it."""
        return alter(world, chosen, degrees=turned(world.degrees, self.degrees))


@settings("drift")
class Exchange(Change):
    """Two clients exchange their samples: FlexCFL's "swap all" and "swap part".

    The concerned clients meet in pairs, anew in each event, and each pair exchanges
    with a probability.
    """

    probability: Fraction = 1.0
    """With which each pair exchanges."""
    part: bool = False
    """Exchange two labels only: one that the first holds and the second does not, for
    one the other way round; nothing if only one of them has such a label, and any two
    that they hold if neither has, as where everyone holds all. Rotations and names of
    labels stay with the client."""

    def change(self, world: World, chosen: BoolArray, occasion: Occasion) -> World:
        """Return the world after it."""
        rng = occasion.rng
        met = rng.permutation(np.flatnonzero(chosen))
        pairs = met[: len(met) // 2 * 2].reshape(-1, 2)
        pairs = pairs[rng.random(len(pairs)) < self.probability]
        if self.part:
            return _exchange_labels(world, pairs, occasion.held(world), rng)
        order = np.arange(world.clients)
        order[pairs] = pairs[:, ::-1]
        return replace(world, **{name: of[order] for name, of in traits(world).items()})


def _exchange_labels(
    world: World, pairs: IntArray, held: BoolArray, rng: np.random.Generator
) -> World:
    """Let pairs of clients exchange two labels each, drawn for every pair."""
    one = held[pairs[:, 0]]
    two = held[pairs[:, 1]]
    own = np.stack([one & ~two, two & ~one], axis=1)
    alike = ~own.any(axis=(1, 2))
    own[alike] = one[alike, None]
    able = own[:, 0].any(axis=1) & own[:, 1].any(axis=1)
    points = np.where(own, rng.random(own.shape), -1.0)
    labels = points.argmax(axis=2)
    # The second of two labels that both hold must be another one.
    points[np.arange(len(pairs)), 1, labels[:, 0]] = -2.0
    labels[:, 1] = points[:, 1].argmax(axis=1)
    pairs = pairs[able, :, None]
    labels = labels[able, None]
    tables = {}
    for name in ("allocation", "source", "groups"):
        tables[name] = getattr(world, name).copy()
        tables[name][pairs, labels] = getattr(world, name)[pairs[:, ::-1], labels]
    return replace(world, **tables)


@settings("drift")
class Arrival(Change):
    """Something arrives with each event, part by part, and may be forgotten again."""

    window: Count | None = None
    """Rounds for which a part is remembered, as the nearest number of parts; as much is
    there at first. A number between 0 and 1 is a share of the run. null: for ever, and
    one part is there at first."""

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = self.window is None or self.every is not None
        allowed = "null, or at least 1 together with drift.every"
        require(ok, "drift.window", self.window, allowed)

    @property
    def kept(self) -> int:
        """Parts that are there at first, and remembered if not all are."""
        if self.window is None or self.every is None:
            return 1
        return max(1, int(self.window / self.every + 0.5))

    def present(self, occurrence: int) -> tuple[int, int]:
        """Return the number of the first part that is there, and the last one's + 1."""
        return (occurrence if self.window else 0), occurrence + self.kept


ORDERS = {"random": AT_RANDOM, "own": BY_RANK, "time": BY_TIME}


@settings("drift")
class Release(Arrival):
    """Samples arrive in equal parts: FlexCFL's "incremental", Fielding's streams.

    The first parts are there in round 1, whenever the others come. After the last part
    nothing more arrives, and nothing is forgotten.
    """

    first: Count = 1
    """The round from which `every` counts."""
    periods: Count = 4
    """Number of the parts."""
    order: Literal["random", "own", "time"] = "random"
    """A client's training samples in any order, while its test samples are all there;
    or training and test samples by the time when they were taken: as many of a client's
    at a time, or those of as long a time, the same for all clients."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.fraction == 1, "drift.fraction", self.fraction, "1, ids or modulo")

    def times(self, total: int) -> list[int]:
        """Return the rounds at whose start it happens, the first of them included."""
        return sorted({1, *super().times(total)})

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
