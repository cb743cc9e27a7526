"""Who holds which labels and samples, at the start and after a new allocation.

The kinds: `worlds.label_skew`, `worlds.mixtures`, `worlds.natural`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field, replace
from typing import Annotated, Literal, TypeAlias

import numpy as np
from pydantic import Field

from cfl_flower.data.reading.pool import Pool
from cfl_flower.data.worlds.allocation import (
    ClientSamples,
    SamplePair,
    divide_once,
    draw,
)
from cfl_flower.data.worlds.world import (
    Allocation,
    Layout,
    World,
    first_world,
    relabel_clients,
)
from cfl_flower.seeding import generator, no_common_draws
from cfl_flower.settings import (
    Count,
    Natural,
    require,
    require_memory,
    settings,
)
from cfl_flower.types import BoolArray, FloatArray, IntArray

Pools = tuple[Pool, Pool]
"""The pools for training and for testing."""


Known = Sequence[Allocation]
"""Earlier allocations, in order."""

Angles: TypeAlias = Annotated[list[float], Field(min_length=1)]
"""Some angles, in degrees."""

DEALT = ("copies", "domains", "minimum", "test_minimum")
"""Settings without effect where clients' samples are not dealt out of one pool."""


@settings("partition")
class Partition:
    """What all partitions have in common; this one is iid."""

    samples: Count | None = None
    """Samples per client, drawn with replacement. null allocates every sample to
    exactly one client; where only some clients change later, these draw as many as they
    had at the start, with replacement from all samples."""
    test_samples: Count | None = None
    """The same for testing."""
    minimum: Natural = 0
    """Samples of each label that a client wants at all, before the others are shared;
    fewer where they would take more than half of a label's samples, and none where
    samples are drawn."""
    test_minimum: Natural = 0
    """The same for testing."""
    rotations: Angles = field(default_factory=lambda: [0.0])
    """Degrees by which images are turned, one for each of as many groups of clients as
    large as possible (StoCFL)."""
    shifts: Annotated[list[int], Field(min_length=1)] = field(
        default_factory=lambda: [0]
    )
    """Label c is called (c + shift) mod L, one shift for each group of clients, in
    every combination with the rotations (StoCFL)."""
    copies: bool = False
    """Each combination allocates the whole dataset, instead of its part of one."""
    domains: Count = 1
    """Datasets of a hybrid, one for each group of clients, in every combination."""
    shared: Literal["none", "rare_half", "one", "two"] = "none"
    """Training samples that everyone holds beside its own, against heterogeneity: one
    of each of the rarer half of the labels, one of each label, or two (Fielding)."""
    tests: Literal["own", "labels", "whole"] = "own"
    """Samples of the reported accuracy: the client's own test samples (personalised);
    or, as it calls and turns them, those of the test set with a label that it trains
    on, or the whole test set (generalised). Then that on its own samples is reported
    beside, as ``personalised``."""
    validation: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    """Share of the training samples that nobody trains on; each client is tested on
    those that it holds as well, and `validation_accuracy` is on them."""

    @property
    def turns(self) -> tuple[float, ...]:
        """Degrees by which samples of each distribution are turned, before others."""
        return (0.0,)

    def shared_samples(self, labels: IntArray, seed: int) -> IntArray:
        """Return the indices of the samples that everyone holds."""
        order = np.argsort(np.bincount(labels), kind="stable")
        rng = generator(seed, "shared")
        half = order[: len(order) // 2]
        wanted = {"none": order[:0], "rare_half": half, "one": order, "two": order}
        count = 2 if self.shared == "two" else 1
        drawn = [
            rng.permutation(np.flatnonzero(labels == label))[:count]
            for label in wanted[self.shared]
        ]
        return np.concatenate([*drawn, np.zeros(0, np.int64)])

    def held_out(self, samples: int, seed: int) -> BoolArray:
        """Return which of the training samples are for validation, shape (samples,).

        The same for all clients and rounds: a sample that a client is tested on never
        reaches its model through another client, or through an earlier allocation.
        """
        # A device's samples that are there keep their draws when others follow.
        return generator(seed, "validation").random(samples) < self.validation

    def layout(self, clients: int, classes: int, known: Known, seed: int) -> Layout:
        """Draw a layout, with no group of label distributions that is known."""
        return Layout(np.ones((clients, classes)), np.zeros(clients, np.int64))

    def checked_layout(
        self, clients: int, classes: int, known: Known, seed: int
    ) -> Layout:
        """Return the layout; raise a `ConfigError` if it is of others than asked."""
        with no_common_draws(f"partition: {type(self).__name__}.layout"):
            layout = self.layout(clients, classes, known, seed)
        said = f"partition: what {type(self).__name__}.layout returns"
        require(isinstance(layout, Layout), said, type(layout).__name__, "a Layout")
        for name, asked in (("demand", (clients, classes)), ("groups", (clients,))):
            shape = getattr(layout, name).shape
            key = f"partition: {type(self).__name__}.layout: {name}.shape"
            require(shape == asked, key, shape, str(asked))
        return layout

    def check_size(self, clients: int, classes: int) -> None:
        """Raise `ConfigError` if so many clients or samples need more memory."""
        require_memory("clients", clients, clients * (1000 + 100 * classes))
        for name in ("samples", "test_samples"):
            count = getattr(self, name) or 0
            require_memory(f"partition.{name}", count, 8 * count * clients)

    def begin(self, clients: int, classes: int, seed: int) -> World:
        """Return the world of round 1."""
        self.check_size(clients, classes)
        layout = self.checked_layout(clients, classes, [], seed)
        kinds = (len(self.rotations), len(self.shifts), self.domains)
        # Evenly within each group of clients, too.
        order = np.empty(clients, np.int64)
        ties = generator(seed, "traits").permutation(clients)
        order[np.lexsort((ties, layout.groups))] = np.arange(clients)
        kind = order % math.prod(kinds)
        turn, shift, domain = np.unravel_index(kind, kinds)
        copies = kind if self.copies else np.zeros(clients, np.int64)
        world = first_world(layout, domain, copies)
        degrees = np.array(self.rotations, float)[turn]
        shifts = np.array([each % classes for each in self.shifts])[shift]
        names = (np.arange(classes) + shifts[:, None]) % classes
        world = relabel_clients(world, np.ones(clients, bool), names)
        return replace(world, degrees=degrees % 360)

    def allocate_samples(
        self, pools: Pools, allocation: Allocation, seed: int, first: SamplePair | None
    ) -> SamplePair:
        """Return the indices of the samples that each taker of an allocation gets.

        They count through the pool once for each of ``turns``, one after the other.
        ``first`` are those of the first allocation, None if this is it.
        """

        def deal(part: int, name: str, count: int | None, least: int) -> ClientSamples:
            rng = generator(seed, name, allocation.number)
            labels, demand = self._strata(pools[part], allocation)
            clients = range(len(demand))
            if count is None and allocation.takers.all():
                allocated = [np.zeros(0, np.int64) for _ in clients]
                for copy in np.unique(allocation.copies):
                    rows = np.flatnonzero(allocation.copies == copy)
                    divided = divide_once(labels, demand[rows], rng, least)
                    for row, own in zip(rows.tolist(), divided, strict=True):
                        allocated[row] = own
                return allocated
            had = [len(first[part][client]) if first else 0 for client in clients]
            sizes = np.where(allocation.takers, count or had, 0)
            return draw(labels, self.wishes(demand, labels), sizes, rng)

        return (
            deal(0, "deal", self.samples, self.minimum),
            deal(1, "deal-test", self.test_samples, self.test_minimum),
        )

    def wishes(self, demand: FloatArray, labels: IntArray) -> FloatArray:
        """Return the label distributions, up to a factor, that samples are drawn by.

        A demand is a share of a label's samples, of which there may be more or fewer.
        """
        return demand * np.bincount(labels, minlength=demand.shape[1])

    def _strata(
        self, pool: Pool, allocation: Allocation
    ) -> tuple[IntArray, FloatArray]:
        """Return labels and demand; in a hybrid, a label for each domain and label."""
        count = self._count_domains(pool)
        demand = allocation.layout.demand
        if pool.domains is None:
            return pool.labels, demand
        clients, classes = demand.shape
        table = np.zeros((clients, count, classes))
        table[np.arange(clients), allocation.domains] = demand
        return pool.domains * classes + pool.labels, table.reshape(clients, -1)

    def _count_domains(self, pool: Pool) -> int:
        count = 1 if pool.domains is None else int(pool.domains.max()) + 1
        allowed = f"{count}, the number of datasets in the dataset"
        require(count == self.domains, "partition.domains", self.domains, allowed)
        return count
