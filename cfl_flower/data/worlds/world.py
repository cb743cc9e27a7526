"""Who holds what in every round of a simulation, before any data are loaded.

A `World` says where each client's samples come from and how they are shown; a drift is
a function from one world to the next. The samples follow from the world alone, so a
drift that returns to an earlier world restores the very same data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cfl_flower.settings import require
from cfl_flower.types import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    from torch import Tensor

AT_RANDOM, BY_RANK, BY_TIME = range(3)
"""The order in which samples arrive: any; a client's own chronological one, a share of
its samples at a time; that of the dataset's clock, a span of time at a time."""


COMMON = ("allocations", "shown", "transition")
"""Fields of a world that are no traits of its clients."""


class ReadOnlyArrays:
    """Closes a dataclass's arrays for writing: worlds of other rounds share them."""

    def __post_init__(self) -> None:
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)


@dataclass(frozen=True)
class Layout(ReadOnlyArrays):
    """A demand for samples."""

    demand: FloatArray
    """Each client's wish for each label, relative to the other clients' and labels',
    shape (clients, L)."""
    groups: IntArray
    """The clients that follow one label distribution, numbered over the whole run; all
    0 where each has its own. In a mixture, each client's main one. Shape (clients,)."""
    mixture: FloatArray | None = None
    """Share of each of K distributions in a client's samples, shape (clients, K)."""

    def __post_init__(self) -> None:
        # Lists and tensors, too.
        for name in ("demand", "groups"):
            object.__setattr__(self, name, np.asarray(getattr(self, name)))
        wrong = self.demand[~(np.isfinite(self.demand) & (self.demand >= 0))]
        allowed = "finite numbers of at least 0 in what layout returns"
        require(not len(wrong), "partition: Layout.demand", wrong[:3], allowed)
        super().__post_init__()


@dataclass(frozen=True)
class Allocation(ReadOnlyArrays):
    """Samples allocated at one time; arrays have the shape (clients,)."""

    layout: Layout
    takers: BoolArray
    """Whether each client was allocated samples; the others keep theirs."""
    domains: IntArray
    """Dataset, in a hybrid, of each client's allocation."""
    copies: IntArray
    """Copy of the dataset of each client's allocation, where there are several."""
    draws: IntArray
    """Number of earlier allocations of each client."""
    number: int = 0
    """Number of earlier allocations."""


class Transition(NamedTuple):
    """A change in the course of some rounds, sample by sample."""

    before: World
    """World without the change."""
    began: int
    """First round of the transition."""
    width: int
    """The number of its rounds, in the last of which all is as after it."""
    share: float
    """Share of the samples that have changed, from 0 to 1."""


class Look(Protocol):
    """Something that is done to samples; equal looks do the same."""

    def show(self, x: Tensor, labels: IntArray, rows: IntArray, part: str) -> Tensor:
        """Return samples as they look after it, shape (n, *shape).

        They have the original ``labels`` and lie in these ``rows`` of a pool, that of
        the ``part`` for training or for testing; both have the shape (n,).
        """


@dataclass(frozen=True)
class World(ReadOnlyArrays):
    """What all clients hold between two changes. Arrays cannot be written to.

    Those of labels have the shape (clients, L), the others (clients,).
    """

    allocations: tuple[Allocation, ...]
    """All that were allocated so far."""
    allocation: IntArray
    source: IntArray
    """The samples of a label are those that client ``source`` got in ``allocation``."""
    groups: IntArray
    """The label distribution that they were allocated by; -1 without any."""
    domains: IntArray
    """Dataset, in a hybrid, of each client's samples."""
    degrees: FloatArray
    """Counter-clockwise rotation of its images."""
    relabel: IntArray
    """Label that each client gives to samples of a label."""
    visible: BoolArray
    """The labels whose samples have arrived and are not forgotten yet."""
    since: FloatArray
    until: FloatArray
    """The part of its stream, from 0 to 1, that has arrived and is not forgotten."""
    order: IntArray
    """Order of the stream: `AT_RANDOM`, which is one of training samples alone,
    `BY_RANK` or `BY_TIME`."""
    looks: IntArray
    """Look of each label's training samples: a number of `shown`."""
    test_looks: IntArray
    """The same of test samples, which may look different."""
    shown: tuple[tuple[Look, ...], ...] = ((),)
    """Transformations that make up each look, in order; look 0 is as recorded."""
    transition: Transition | None = None
    """Transition that ends in this world, if one goes on."""

    @property
    def clients(self) -> int:
        """The number of clients."""
        return len(self.domains)

    @property
    def demand(self) -> FloatArray:
        """What each client was allocated by, label by label, shape (clients, L)."""
        return self._of_sources(lambda number: self.allocations[number].layout.demand)

    def held(self, labels: Callable[[World, int], BoolArray]) -> BoolArray:
        """Return of which original labels each client has samples, shape (clients, L).

        ``labels`` returns what each client got in an allocation of this world.
        """
        return self._of_sources(lambda number: labels(self, number)) > 0

    def _of_sources(self, table: Callable[[int], NDArray[Any]]) -> FloatArray:
        """Return what a table of each allocation has of the source of each label."""
        found = np.zeros(self.groups.shape)
        for number, mask in self._origins():
            label = np.nonzero(mask)[1]
            found[mask] = table(number)[self.source[mask], label]
        return found

    @property
    def mixture(self) -> FloatArray:
        """Share of each distribution in a client's samples, shape (clients, K).

        Where its labels come from several allocations, the mean over labels.
        """
        first = self.allocations[0].layout.mixture
        if first is None:
            return np.ones((self.clients, 1))
        taken = np.zeros((*self.groups.shape, first.shape[1]))
        for number, mask in self._origins():
            mixture = self.allocations[number].layout.mixture
            if mixture is not None:
                taken[mask] = mixture[self.source[mask]]
        return taken.mean(axis=1)

    @property
    def classes(self) -> int:
        """The number of labels, L."""
        return int(self.relabel.shape[1])

    @property
    def majority(self) -> World:
        """What most samples are as: this world, or that before the transition."""
        now = self.transition
        return now.before if now is not None and now.share < 0.5 else self

    @cached_property
    def alike(self) -> FloatArray:
        """Share of all clients whose test samples look as a client's, shape (clients,).

        By their rotation and looks.
        """
        _, kind = _kinds(self.degrees, self.test_looks)
        return np.bincount(kind)[kind] / self.clients

    @cached_property
    def meanings(self) -> IntArray:
        """Which clients mean the same by a class, shape (clients, L).

        Equal, and numbered from 0, for clients that call the same original labels, of
        the same domain, rotation and look, by the name of that class.
        """
        if self.majority is not self:
            return self.majority.meanings
        # However many clients, there are few kinds of them.
        first, kind = _kinds(self.relabel, self.domains, self.degrees, self.looks)
        names = self.relabel[first]
        others = np.column_stack([self.domains, self.degrees])[first]
        looks = self.looks[first]
        found = np.empty((len(first), self.classes), np.int64)
        for label in range(self.classes):
            called = names == label
            named = np.column_stack([called, others, np.where(called, looks, 0)])
            _, numbers = np.unique(named, axis=0, return_inverse=True)
            found[:, label] = numbers.reshape(-1)
        return found[kind]

    def _origins(self) -> Iterator[tuple[int, BoolArray]]:
        """Yield the number of each allocation that anything is of, and where it is."""
        for number in np.unique(self.allocation).tolist():
            yield number, self.allocation == number


def _kinds(*traits: NDArray[Any]) -> tuple[IntArray, IntArray]:
    """Return the first client of each kind, by some traits, and each client's kind."""
    rows = np.column_stack(traits)
    differing = (rows != rows[0]).any(axis=0)
    if not differing.any():
        return np.zeros(1, np.int64), np.zeros(len(rows), np.int64)
    some = rows[:, differing]
    _, first, kind = np.unique(some, axis=0, return_index=True, return_inverse=True)
    return first, kind.reshape(-1)


def first_world(
    layout: Layout, domains: IntArray | None = None, copies: IntArray | None = None
) -> World:
    """Return the world in which everyone holds what was allocated first, as it is."""
    clients, classes = layout.demand.shape
    zeros = np.zeros(clients, np.int64)
    domains = zeros if domains is None else domains
    copies = zeros if copies is None else copies
    return World(
        (Allocation(layout, np.ones(clients, bool), domains, copies, zeros),),
        allocation=np.zeros((clients, classes), np.int64),
        source=np.tile(np.arange(clients)[:, None], classes),
        groups=_groups(layout),
        domains=domains,
        degrees=np.zeros(clients),
        relabel=np.tile(np.arange(classes), (clients, 1)),
        visible=np.ones((clients, classes), bool),
        since=np.zeros(clients),
        until=np.ones(clients),
        order=np.full(clients, AT_RANDOM),
        looks=np.zeros((clients, classes), np.int64),
        test_looks=np.zeros((clients, classes), np.int64),
    )


def allocate(world: World, layout: Layout, takers: BoolArray) -> World:
    """Allocate samples of a new layout to some clients, a mask of shape (clients,)."""
    copies = world.allocations[0].copies
    number = len(world.allocations)
    draws = times_allocated(world.allocations)
    allocation = Allocation(layout, takers, world.domains, copies, draws, number)
    world = replace(world, allocations=(*world.allocations, allocation))
    source = np.arange(world.clients)[:, None]
    groups = _groups(layout)
    return alter(world, takers, allocation=number, source=source, groups=groups)


def alter(world: World, clients: BoolArray, **values: ArrayLike) -> World:
    """Give some clients other values of traits.

    ``clients`` is a mask of shape (clients,), or (clients, L) for traits of labels.
    """
    shapes = [world.groups.shape[:1], world.groups.shape]
    mask = np.asarray(clients)
    ok = mask.dtype == bool and mask.shape in (*shapes, (*shapes[0], 1))
    allowed = f"a mask: booleans of shape {shapes[0]} or {shapes[1]}, as chosen is"
    require(ok, "drift: the clients to alter", f"{mask.dtype}{mask.shape}", allowed)
    altered: dict[str, Any] = {}
    for name, value in values.items():
        require(name in traits(world), "drift: the trait to alter", name, "another")
        old = getattr(world, name)
        kind = np.asarray(value).dtype
        size = old.shape
        known = ((), size, size[1:], (*size[:-1], 1), (1, *size[1:]))
        ok = mask.ndim <= old.ndim and np.shape(value) in known
        ok = ok and np.can_cast(kind, old.dtype, "same_kind")
        given = f"{kind}{np.shape(value)}"
        require(ok, f"drift: what {name} becomes", given, f"{old.dtype}{old.shape}")
        own = mask if old.ndim == mask.ndim else mask[:, None]
        altered[name] = np.where(own, value, old)
    return replace(world, **altered)


def turned(degrees: ArrayLike, more: float) -> FloatArray:
    """Return angles that are turned further, from 0 to below 360."""
    # Rounded, so that equal turns of up to 9 decimals can come full circle.
    return np.round((np.asarray(degrees) + more) % 360, 9) % 360


def times_allocated(allocations: Sequence[Allocation]) -> IntArray:
    """Return how often each client was allocated samples, shape (clients,) or ()."""
    if not allocations:
        return np.zeros((), np.int64)
    return allocations[-1].draws + allocations[-1].takers


def _groups(layout: Layout) -> IntArray:
    return np.where(layout.demand > 0, layout.groups[:, None], -1)


def traits(world: World) -> dict[str, Any]:
    """Return what describes each client, by name: arrays with a row for each."""
    names = [each.name for each in fields(world) if each.name not in COMMON]
    return {name: getattr(world, name) for name in names}


def differs(one: World, two: World) -> bool:
    """Return whether any client holds something else in two worlds."""
    others = traits(two)
    pairs = ((value, others[name]) for name, value in traits(one).items())
    shares = [1.0 if w.transition is None else w.transition.share for w in (one, two)]
    same = shares[0] == shares[1] and all(np.array_equal(*pair) for pair in pairs)
    return one is not two and not same


def relabel_clients(world: World, clients: BoolArray, names: IntArray) -> World:
    """Let some clients call what they called label c ``names[..., c]`` from now on.

    ``names`` has the shape (L,) or (clients, L).
    """
    size = world.relabel.shape
    ok = np.shape(names) in (size, size[1:])
    require(ok, "drift: the shape of names", np.shape(names), f"{size} or {size[1:]}")
    table = np.broadcast_to(names, size)
    renamed = np.take_along_axis(table, world.relabel, axis=1)
    return alter(world, clients, relabel=renamed)
