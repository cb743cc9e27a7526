"""What changes: who holds what, what labels are called, how images are turned."""

from __future__ import annotations

from dataclasses import field, replace

import numpy as np

from cfl_flower.data.worlds.drift import Change, Occasion
from cfl_flower.data.worlds.world import (
    World,
    allocate,
    alter,
    relabel_clients,
    traits,
    turned,
)
from cfl_flower.settings import Fraction, Natural, require, settings
from cfl_flower.types import BoolArray, IntArray


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
        swapped = [label for swap in self.swaps for label in swap]
        ok = len({*swapped}) == len(swapped)
        require(ok, "drift.swaps", self.swaps, "each label once, or a permutation")
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
            # Their names by now.
            pairs = np.take_along_axis(world.relabel, pairs, axis=1)
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
