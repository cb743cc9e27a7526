"""Partitions that differ in their labels: by groups, by Dirichlet shares, by a few."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, TypeAlias

import numpy as np
from pydantic import Field

from cfl_flower.data.worlds.partition import Known, Partition
from cfl_flower.data.worlds.world import Layout
from cfl_flower.seeding import generator
from cfl_flower.settings import (
    Count,
    Fraction,
    NonNegative,
    require,
    settings,
)
from cfl_flower.settings import Natural as NaturalNumber
from cfl_flower.types import FloatArray, IntArray

Concentration: TypeAlias = Annotated[float, Field(ge=0.01, le=1e6)]
"""Below, nearly all gamma variates are 0."""

SMALLEST = 1e-300
"""Least share of a label's samples that a client that holds it wants."""


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
    alpha: Concentration | None = None
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
        return self.purity * own + (1 - self.purity) / classes


@settings("partition")
class Dirichlet(Partition):
    """Each label's samples are spread over the clients by a Dirichlet distribution.

    As in FedCCFA: over clients for each label, not over labels for each client.
    """

    minimum: NaturalNumber = 5
    test_minimum: NaturalNumber = 2
    alpha: Annotated[float, Field(gt=0, le=1e6)] = 0.5
    """Concentration: small is uneven."""

    def layout(self, clients: int, classes: int, known: Known, seed: int) -> Layout:
        """Draw each label's shares."""
        rng = generator(seed, "layout", len(known))
        shares = rng.dirichlet(np.full(clients, self.alpha), classes).T
        shares = np.maximum(shares, SMALLEST)
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
        shares = np.clip(shares, SMALLEST, 1 / SMALLEST)
        return Layout(np.where(distance < self.labels, shares, 0), first)
