"""Who holds which labels and samples, at the start and after a new allocation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field, replace
from functools import partial
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from cfl_flower.data.reading.pool import Pool
from cfl_flower.data.worlds.allocation import (
    ClientSamples,
    SamplePair,
    divide_once,
    draw,
    samples_of_owners,
)
from cfl_flower.data.worlds.world import (
    Allocation,
    Layout,
    World,
    first_world,
    relabel_clients,
)
from cfl_flower.errors import ConfigError
from cfl_flower.seeding import generator
from cfl_flower.settings import (
    Count,
    Fraction,
    NonNegative,
    Positive,
    require,
    require_memory,
    settings,
)
from cfl_flower.settings import Natural as NaturalNumber
from cfl_flower.types import BoolArray, FloatArray, IntArray

Pools = tuple[Pool, Pool]
"""The pools for training and for testing."""


SMALLEST = 1e-300
"""Least share of a label's samples that a client that holds it wants."""

Known = Sequence[Allocation]
"""Earlier allocations, in order."""


@settings("partition")
class Partition:
    """What all partitions have in common; this one is iid."""

    samples: Count | None = None
    """Samples per client, drawn with replacement. null allocates every sample to
    exactly one client; where only some clients change later, these draw as many as they
    had at the start, with replacement from all samples."""
    test_samples: Count | None = None
    """The same for testing."""
    minimum: NaturalNumber = 0
    """Samples of each label that a client wants at all, before the others are shared;
    fewer where they would take more than half of a label's samples, and none where
    samples are drawn."""
    test_minimum: NaturalNumber = 0
    """The same for testing."""
    rotations: Annotated[list[float], Field(min_length=1)] = field(
        default_factory=lambda: [0.0]
    )
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
        draws = generator(seed, "validation").random(samples)
        return draws < self.validation

    def layout(self, clients: int, classes: int, known: Known, seed: int) -> Layout:
        """Draw a layout, with no group of label distributions that is known."""
        del known, seed
        return Layout(np.ones((clients, classes)), np.zeros(clients, np.int64))

    def checked_layout(
        self, clients: int, classes: int, known: Known, seed: int
    ) -> Layout:
        """Return the layout; raise a `ConfigError` if it is of others than asked."""
        layout = self.layout(clients, classes, known, seed)
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
        dealt = first or (None, None)
        number = allocation.number
        train, test = (generator(seed, each, number) for each in ("deal", "deal-test"))
        part = partial(self._allocate, allocation)
        return (
            part(pools[0], train, self.samples, self.minimum, dealt[0]),
            part(pools[1], test, self.test_samples, self.test_minimum, dealt[1]),
        )

    def _allocate(
        self,
        allocation: Allocation,
        pool: Pool,
        rng: np.random.Generator,
        count: int | None,
        minimum: int,
        first: ClientSamples | None,
    ) -> list[IntArray]:
        labels, demand = self._strata(pool, allocation)
        clients = range(len(demand))
        if count is None and allocation.takers.all():
            allocated = [np.zeros(0, np.int64) for _ in clients]
            for copy in np.unique(allocation.copies):
                rows = np.flatnonzero(allocation.copies == copy)
                divided = divide_once(labels, demand[rows], rng, minimum)
                for row, own in zip(rows.tolist(), divided, strict=True):
                    allocated[row] = own
            return allocated
        had = [len(first[client]) if first else 0 for client in clients]
        sizes = np.where(allocation.takers, count or had, 0)
        return draw(labels, self.wishes(demand, labels), sizes, rng)

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


@settings("partition")
class LabelGroups(Partition):
    """Labels are split into groups; a client holds mostly one group's."""

    groups: Count = 5
    """Number of label groups, which are the true concepts."""
    purity: Fraction = 0.95
    """Share of a client's distribution on its own group; the rest is spread over all
    labels."""
    named: list[list[int]] = field(default_factory=list)
    """The labels of each group; empty for groups at random."""
    labels: Count | None = None
    """Labels of each group at random, which may share some: those that no group has
    come first (FedDAG). null for disjoint groups."""
    alpha: Positive | None = None
    """Concentration of the Dirichlet distribution by which each label's samples are
    spread over the clients that hold it (FedDAG). null for equal shares."""

    def __post_init__(self) -> None:
        ok = len(self.named) in (0, self.groups) and all(self.named)
        allowed = f"labels for each of the {self.groups} groups, or none"
        require(ok, "partition.named", self.named, allowed)
        ok = self.labels is None or not self.named
        require(ok, "partition.labels", self.labels, "null with partition.named")

    def layout(self, clients: int, classes: int, known: Known, seed: int) -> Layout:
        """Split the labels into groups that never existed, and spread the clients.

        A client's new group does not depend on its old one. Where the labels allow no
        new groups, as five labels and five groups do, some or all are old ones. Raises
        `ConfigError` if there are more groups than labels, or a single one, which is
        every one.
        """
        # Groups that share labels may be more than these.
        name = "labels" if self.labels else "groups"
        count = self.labels or self.groups
        allowed = f"partition=iid, or at most the {classes} labels of the dataset"
        require(count <= classes, f"partition.{name}", count, allowed)
        ok = self.groups > 1 or not known
        allowed = "at least 2 with drift=regroup"
        require(ok, "partition.groups", self.groups, f"{allowed}, or drift=none")
        # Of a client's shares it could not be told which group they are of.
        ok = self.alpha is None or not known
        require(ok, "partition.alpha", self.alpha, "null with drift=regroup")
        rng = generator(seed, "layout", len(known))
        layouts = [allocation.layout for allocation in known]
        existed = {
            old.demand[client].tobytes(): int(old.groups[client])
            for old in layouts
            for client in np.unique(old.groups, return_index=True)[1]
        }
        for _ in range(1000):
            rows = self._distributions(classes, rng)
            if not any(row.tobytes() in existed for row in rows):
                break
        groups = rng.permutation(np.arange(clients) % self.groups)
        first = 1 + max((old.groups.max() for old in layouts), default=-1)
        keys = [row.tobytes() for row in rows]
        numbers = [existed.get(key, first + keys.index(key)) for key in keys]
        demand = rows[groups]
        if self.alpha is not None:
            # Gamma variates, in proportion, follow a Dirichlet distribution.
            shares = rng.gamma(self.alpha, size=demand.shape)
            # Never 0, or who holds a label would not be told from who does not.
            demand *= np.maximum(shares, SMALLEST)
        return Layout(demand, np.array(numbers, np.int64)[groups])

    def wishes(self, demand: FloatArray, labels: IntArray) -> FloatArray:
        """Return the demand, which is a distribution of labels already."""
        del labels
        return demand

    def _distributions(self, classes: int, rng: np.random.Generator) -> FloatArray:
        own = np.zeros((self.groups, classes))
        if self.named:
            for row, labels in zip(own, self.named, strict=True):
                ok = all(0 <= label < classes for label in labels)
                allowed = f"labels from 0 to {classes - 1}"
                require(ok, "partition.named", self.named, allowed)
                row[labels] = 1
        elif self.labels:
            for row in own:
                # Labels of groups before come last, and all in a random order.
                order = np.lexsort((rng.random(classes), own.any(axis=0)))
                row[order[: self.labels]] = 1
        else:
            group = rng.permutation(np.arange(classes) % self.groups)
            own[group, np.arange(classes)] = 1
        own /= own.sum(axis=1, keepdims=True)
        rows: FloatArray = self.purity * own + (1 - self.purity) / classes
        return rows


@settings("partition")
class Dirichlet(Partition):
    """Each label's samples are spread over the clients by a Dirichlet distribution.

    As in FedCCFA: over clients for each label, not over labels for each client.
    """

    minimum: NaturalNumber = 5
    test_minimum: NaturalNumber = 2
    alpha: Positive = 0.5
    """Concentration: small is uneven."""

    def layout(self, clients: int, classes: int, known: Known, seed: int) -> Layout:
        """Draw each label's shares."""
        rng = generator(seed, "layout", len(known))
        shares = rng.dirichlet(np.full(clients, self.alpha), classes).T
        return Layout(np.ascontiguousarray(shares), np.zeros(clients, np.int64))


@settings("partition")
class FewClasses(Partition):
    """A client holds a few labels, in sizes that follow a power law (FedProx, FlexCFL).

    Client i holds the labels i, i + 1, ... mod L, and its share of a label's samples,
    after the minimum, is a lognormal draw.
    """

    minimum: NaturalNumber = 5
    test_minimum: NaturalNumber = 1
    labels: Count = 2
    """Labels per client."""
    sigma: NonNegative = 2.0
    """Sigma of the lognormal distribution of a client's share of a label; 0 for equal
    ones."""
    size_sigma: NonNegative = 0.0
    """Sigma of the lognormal factor that all of a client's shares have in common."""

    def layout(self, clients: int, classes: int, known: Known, seed: int) -> Layout:
        """Draw each client's share of its labels."""
        rng = generator(seed, "layout", len(known))
        ok = self.labels <= classes
        allowed = f"partition=iid, or at most the {classes} labels"
        require(ok, "partition.labels", self.labels, f"{allowed} of the dataset")
        first = np.arange(clients) % classes
        distance = (np.arange(classes) - first[:, None]) % classes
        shares = rng.lognormal(0, self.sigma, (clients, classes))
        if self.size_sigma:
            shares *= rng.lognormal(0, self.size_sigma, (clients, 1))
        return Layout(np.where(distance < self.labels, shares, 0), first)


@settings("partition")
class Natural(Partition):
    """A client is an owner that the dataset knows: a writer, a user, a camera, a zone.

    Fewer clients than owners are drawn from them, and the others come after: whoever is
    a client keeps its number when there are more.
    """

    unused: ClassVar[tuple[str, ...]] = (
        "copies",
        "domains",
        "minimum",
        "samples",
        "test_minimum",
        "test_samples",
    )
    """Inherited settings without effect, which are refused."""

    def layout(self, clients: int, classes: int, known: Known, seed: int) -> Layout:
        """Return the owners' only layout, or raise `ConfigError` for another one."""
        if known:
            raise ConfigError(
                "partition=natural cannot be allocated anew by drift=regroup; use "
                "drift=none or another one"
            )
        return super().layout(clients, classes, known, seed)

    def allocate_samples(
        self, pools: Pools, allocation: Allocation, seed: int, first: SamplePair | None
    ) -> SamplePair:
        """Return the indices of each owner's samples.

        Raises `ConfigError` if the dataset knows no owners, or fewer than clients.
        """
        del first
        owners = [pool.owners for pool in pools if pool.owners is not None]
        if len(owners) < len(pools):
            raise ConfigError(
                "partition=natural needs a dataset that knows whose samples are whose; "
                "use another partition"
            )
        clients = len(allocation.takers)
        count = max(int(owner.max(initial=-1)) for owner in owners) + 1
        if clients > count:
            raise ConfigError(
                f"clients={clients} is not allowed; use at most the {count} owners of "
                "the dataset"
            )
        # In the order of the draw: sorted, a larger number would renumber everyone, and
        # clients that are asked about after a run would be others.
        chosen = generator(seed, "owners").permutation(count)[:clients]
        train, test = (samples_of_owners(owner, chosen) for owner in owners)
        return train, test
