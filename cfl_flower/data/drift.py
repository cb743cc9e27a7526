"""What changes, when, and for whom."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from cfl_flower.data.partition import Partition
from cfl_flower.data.world import (
    Event,
    EventKey,
    World,
    call_otherwise,
    deal_anew,
    exchange_all,
)
from cfl_flower.seeding import generator
from cfl_flower.settings import require, require_fraction
from cfl_flower.types import BoolArray, IntArray


class Drift(Protocol):
    """A schedule of changes."""

    @property
    def events(self) -> Sequence[Event]:
        """What happens; events of one round happen in this order."""


@dataclass(frozen=True)
class Schedule:
    """Several events.

    Attributes
    ----------
    rounds : list of int
        Of no effect itself: the events of a preset refer to it.
    steps : dict of str to Event
        The events, in their order.
    """

    rounds: list[int] = field(default_factory=list)
    steps: dict[str, Any] = field(default_factory=dict)

    @property
    def events(self) -> Sequence[Event]:
        """What happens; events of one round happen in this order."""
        return list(self.steps.values())

    def __post_init__(self) -> None:
        ok = all(one < two for one, two in pairwise(self.rounds))
        require(ok, "drift.rounds", self.rounds, "ascending rounds")
        for name, step in self.steps.items():
            ok = isinstance(step, Change) and type(step) is not Change
            kind = type(step).__name__
            require(ok, f"drift.steps.{name}", kind, "one kind of change")


@dataclass(frozen=True)
class Change:
    """One kind of event: when it happens and whom it concerns.

    Attributes
    ----------
    rounds : list of int
        The rounds at whose start it happens.
    every : int or None
        It also happens every so many rounds, from round ``first`` on.
    first : int
    fraction : float
        Share of the clients it concerns, chosen at random each time.
    ids : list of int or None
        The clients it may concern.
    modulo : int or None
        It concerns clients whose id modulo this is one of ``residues``.
    residues : list of int
    """

    rounds: list[int] = field(default_factory=list)
    every: int | None = None
    first: int = 2
    fraction: float = 1.0
    ids: list[int] | None = None
    modulo: int | None = None
    residues: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        ascending = all(one < two for one, two in pairwise(self.rounds))
        ok = ascending and all(round >= 1 for round in self.rounds)
        require(ok, "drift.rounds", self.rounds, "ascending rounds of at least 1")
        ok = self.every is None or self.every >= 1
        require(ok, "drift.every", self.every, "null or at least 1")
        require(self.first >= 1, "drift.first", self.first, "a round of at least 1")
        require_fraction("drift.fraction", self.fraction)
        ok = self.ids is None or len(self.ids) > 0
        require(ok, "drift.ids", self.ids, "null or at least one client")
        ok = (self.modulo is None) == (len(self.residues) == 0)
        require(ok, "drift.residues", self.residues, "them together with drift.modulo")
        ok = self.modulo is None or self.modulo >= 1
        require(ok, "drift.modulo", self.modulo, "null or at least 1")
        ok = all(0 <= residue < (self.modulo or 1) for residue in self.residues)
        allowed = f"numbers from 0 to below modulo={self.modulo}"
        require(ok, "drift.residues", self.residues, allowed)

    @property
    def events(self) -> Sequence[Event]:
        """What happens: one event."""
        return [self]

    def times(self, total: int) -> list[int]:
        """Return the rounds at whose start it happens, of ``total`` rounds."""
        regular = range(self.first, total + 1, self.every) if self.every else ()
        return sorted({*self.rounds, *regular})

    def apply(self, world: World, partition: Partition, key: EventKey) -> World:
        """Return the world after it."""
        raise NotImplementedError

    def chosen(self, clients: int, rng: np.random.Generator) -> BoolArray:
        """Draw whom it concerns, shape (clients,).

        Raises
        ------
        ConfigError
            If it names a client that is not there.
        """
        able = np.ones(clients, bool)
        if self.ids is not None:
            ok = all(0 <= client < clients for client in self.ids)
            require(ok, "drift.ids", self.ids, f"clients from 0 to {clients - 1}")
            able = np.isin(np.arange(clients), self.ids)
        if self.modulo is not None:
            able &= np.isin(np.arange(clients) % self.modulo, self.residues)
        candidates = np.flatnonzero(able)
        count = round(self.fraction * len(candidates))
        chosen = np.zeros(clients, bool)
        chosen[rng.permutation(candidates)[:count]] = True
        return chosen

    def rng(self, key: EventKey) -> np.random.Generator:
        """Return the generator of one event."""
        return generator(key.seed, f"drift/{key.number}", key.round)


@dataclass(frozen=True)
class Regroup(Change):
    """Label distributions are replaced by those of a new layout of the partition.

    With label groups: clients go to label groups that did not exist before.
    """

    def apply(self, world: World, partition: Partition, key: EventKey) -> World:
        """Return the world after it."""
        known = [deal.layout for deal in world.deals]
        rng = generator(key.seed, "layout", len(known))
        layout = partition.layout(world.clients, world.classes, known, rng)
        chosen = self.chosen(world.clients, self.rng(key))
        return deal_anew(world, layout, chosen) if chosen.any() else world


@dataclass(frozen=True)
class Relabel(Change):
    """Concept drift: labels get other names; what is not swapped keeps its own.

    Attributes
    ----------
    swaps : list of pairs of int
        Labels that change names with each other. The same swap again undoes it.
    permutation : list of int
        What each label is called instead, all L of them; empty for no permutation.
    random_swaps : int
        Pairs of labels that change names, drawn for each client among those it holds.
    """

    swaps: list[list[int]] = field(default_factory=list)
    permutation: list[int] = field(default_factory=list)
    random_swaps: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        for swap in self.swaps:
            ok = len(swap) == 2 and swap[0] != swap[1]
            require(ok, "drift.swaps", self.swaps, "pairs of two labels")
        ok = self.random_swaps >= 0
        require(ok, "drift.random_swaps", self.random_swaps, "at least 0")

    def apply(self, world: World, partition: Partition, key: EventKey) -> World:
        """Return the world after it."""
        del partition
        rng = self.rng(key)
        chosen = self.chosen(world.clients, rng)
        world = call_otherwise(world, chosen, self._names(world.classes))
        if not self.random_swaps:
            return world
        order = rng.random((world.clients, world.classes)).argsort(axis=1)
        # Labels that a client holds come first.
        absent = np.take_along_axis(world.groups < 0, order, axis=1)
        first = absent.argsort(axis=1, kind="stable")
        order = np.take_along_axis(order, first, axis=1)
        pairs = order[:, : 2 * self.random_swaps]
        names = np.tile(np.arange(world.classes), (world.clients, 1))
        swapped = pairs.reshape(world.clients, -1, 2)[:, :, ::-1].reshape(pairs.shape)
        np.put_along_axis(names, pairs, swapped, axis=1)
        return call_otherwise(world, chosen, names)

    def _names(self, classes: int) -> IntArray:
        names = np.arange(classes)
        if self.permutation:
            ok = sorted(self.permutation) == list(range(classes))
            allowed = f"each label from 0 to {classes - 1} once"
            require(ok, "drift.permutation", self.permutation, allowed)
            names = np.array(self.permutation)
        for swap in self.swaps:
            ok = all(0 <= label < classes for label in swap)
            allowed = f"labels from 0 to {classes - 1}"
            require(ok, "drift.swaps", self.swaps, allowed)
            names[swap] = names[swap[::-1]]
        ok = 2 * self.random_swaps <= classes
        allowed = f"at most half of the {classes} labels"
        require(ok, "drift.random_swaps", self.random_swaps, allowed)
        return names


@dataclass(frozen=True)
class Restore(Change):
    """Back again: clients hold what was dealt to them first, as they called it then.

    After an exchange it takes all clients, or samples have two owners.
    """

    def apply(self, world: World, partition: Partition, key: EventKey) -> World:
        """Return the world after it."""
        chosen = self.chosen(world.clients, self.rng(key))
        first = partition.begin(world.clients, world.classes, key.seed)
        restored = {
            name: np.where(
                chosen if now.ndim == 1 else chosen[:, None], getattr(first, name), now
            )
            for name, now in vars(world).items()
            if name != "deals"
        }
        return replace(world, **restored)


@dataclass(frozen=True)
class Rotate(Change):
    """Covariate drift: images are turned counter-clockwise.

    Attributes
    ----------
    degrees : float
    """

    degrees: float = 90.0

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = math.isfinite(self.degrees)
        require(ok, "drift.degrees", self.degrees, "a finite number")

    def apply(self, world: World, partition: Partition, key: EventKey) -> World:
        """Return the world after it."""
        del partition
        chosen = self.chosen(world.clients, self.rng(key))
        degrees = world.degrees + np.where(chosen, self.degrees, 0)
        # Rounded, so that any number of equal turns can come full circle.
        return replace(world, degrees=np.round(degrees % 360, 9) % 360)


@dataclass(frozen=True)
class Exchange(Change):
    """Two clients exchange their samples: FlexCFL's "swap all" and "swap part".

    The concerned clients meet in pairs, anew in each event, and each pair exchanges
    with a probability.

    Attributes
    ----------
    probability : float
    part : bool
        Exchange two labels only: one that the first holds and the second does not, for
        one the other way round; nothing if only one of them has such a label, and any
        two labels if neither has, as where everyone holds all. Rotations and names of
        labels stay with the client.
    """

    probability: float = 1.0
    part: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require_fraction("drift.probability", self.probability)

    def apply(self, world: World, partition: Partition, key: EventKey) -> World:
        """Return the world after it."""
        del partition
        rng = self.rng(key)
        met = rng.permutation(np.flatnonzero(self.chosen(world.clients, rng)))
        pairs = met[: len(met) // 2 * 2].reshape(-1, 2)
        pairs = pairs[rng.random(len(pairs)) < self.probability]
        if self.part:
            return self._exchange_labels(world, pairs, rng)
        order = np.arange(world.clients)
        order[pairs] = pairs[:, ::-1]
        return exchange_all(world, order)

    @staticmethod
    def _exchange_labels(
        world: World, pairs: IntArray, rng: np.random.Generator
    ) -> World:
        holding = world.groups >= 0
        one, two = holding[pairs[:, 0]], holding[pairs[:, 1]]
        own = np.stack([one & ~two, two & ~one], axis=1)
        own[~own.any(axis=(1, 2))] = True
        able = own[:, 0].any(axis=1) & own[:, 1].any(axis=1)
        points = np.where(own, rng.random(own.shape), -1.0)
        labels = points.argmax(axis=2)
        # The second of two labels that both hold must be another one.
        points[np.arange(len(pairs)), 1, labels[:, 0]] = -2.0
        labels[:, 1] = points[:, 1].argmax(axis=1)
        pairs, labels = pairs[able], labels[able]
        tables = {}
        for name in ("deal", "source", "groups"):
            old = getattr(world, name)
            table = old.copy()
            for label in labels.T:
                table[pairs[:, 0], label] = old[pairs[:, 1], label]
                table[pairs[:, 1], label] = old[pairs[:, 0], label]
            tables[name] = table
        return replace(world, **tables)


@dataclass(frozen=True)
class Release(Change):
    """Training samples arrive in shares, from round 1 on: FlexCFL's "incremental".

    Attributes
    ----------
    share : float
        Of a client's samples, with each event.
    """

    share: float = 0.25

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.share <= 1, "drift.share", self.share, "above 0, at most 1")
        require(self.fraction == 1, "drift.fraction", self.fraction, "1, ids or modulo")
        ok = 1 in self.times(1)
        require(ok, "drift.first", self.first, "1: samples arrive from round 1 on")

    def apply(self, world: World, partition: Partition, key: EventKey) -> World:
        """Return the world after it."""
        del partition
        chosen = self.chosen(world.clients, self.rng(key))
        arrived = min(1.0, self.share * (key.occurrence + 1))
        return replace(world, released=np.where(chosen, arrived, world.released))


@dataclass(frozen=True)
class LabelBuckets(Change):
    """Labels stream in by buckets and are forgotten again: Fielding on Open Images.

    Each client's labels are split into buckets at random, one label in each if there
    are fewer. With each event the next bucket arrives and the oldest is dropped; after
    the last comes the first.

    Attributes
    ----------
    buckets : int
    window : int
        Buckets that a client remembers.
    """

    buckets: int = 10
    window: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.buckets >= 1, "drift.buckets", self.buckets, "at least 1")
        ok = 1 <= self.window <= self.buckets
        allowed = f"from 1 to the {self.buckets} buckets"
        require(ok, "drift.window", self.window, allowed)

    def apply(self, world: World, partition: Partition, key: EventKey) -> World:
        """Return the world after it."""
        del partition
        # The same buckets in every round, over the labels that a client holds.
        points = generator(key.seed, f"buckets/{key.number}").random(world.groups.shape)
        held = world.groups >= 0
        rank = np.where(held, points, 2.0).argsort(axis=1).argsort(axis=1)
        count = held.sum(axis=1, keepdims=True)
        buckets = np.minimum(self.buckets, np.maximum(count, 1))
        bucket = rank * buckets // np.maximum(count, 1)
        age = (bucket - key.occurrence) % buckets
        chosen = self.chosen(world.clients, self.rng(key))[:, None]
        visible = np.where(chosen, age < self.window, world.visible)
        return replace(world, visible=visible)
