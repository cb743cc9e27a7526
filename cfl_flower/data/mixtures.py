"""Clients that mix several distributions: the data of CCFL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated

import numpy as np
from pydantic import Field

from cfl_flower.data.partition import Partition, Pools, SamplePair
from cfl_flower.data.world import Allocation, Layout, times_allocated
from cfl_flower.seeding import generator
from cfl_flower.settings import Positive, require, settings
from cfl_flower.types import FloatArray, IntArray


@settings("partition")
class Mixtures(Partition):
    """Each client mixes K distributions, one of them its main one: the data of CCFL.

    Distribution k is the whole dataset, turned by k * 360 / K degrees. A new allocation
    keeps a client's main distribution. What a client gets follows from the seed, its id
    and how often it was allocated samples before, and from nothing else.
    """

    clusters: Annotated[int, Field(ge=2)] = 4
    """K; the main distributions are the true concepts."""
    sizes: list[int] = field(default_factory=lambda: [500, 2000])
    """The fewest and the most training samples of a client, uniform between; all draw
    as many where ``samples`` is set. As many are for testing without
    ``test_samples``."""
    main: list[float] = field(default_factory=lambda: [0.4, 0.9])
    """The smallest and the largest share of the main distribution, uniform between."""
    others: Positive = 1.0
    """Concentration of the Dirichlet distribution that splits the rest over the other
    distributions: 1 is uniform over all splits, large is even."""

    def __post_init__(self) -> None:
        ok = len(self.sizes) == 2 and 1 <= self.sizes[0] <= self.sizes[1]
        allowed = "two ascending numbers of at least 1"
        require(ok, "partition.sizes", self.sizes, allowed)
        ok = len(self.main) == 2 and 0 <= self.main[0] <= self.main[1] <= 1
        allowed = "two ascending numbers from 0 to 1"
        require(ok, "partition.main", self.main, allowed)
        ok = self.domains == 1 and not self.copies
        allowed = "1, and no copies: the mixtures are of one dataset"
        require(ok, "partition.domains", self.domains, allowed)

    @property
    def turns(self) -> tuple[float, ...]:
        """Degrees by which samples of each distribution are turned."""
        return tuple(number * 360 / self.clusters for number in range(self.clusters))

    def layout(
        self,
        clients: int,
        classes: int,
        known: Sequence[Allocation],
        seed: int,
    ) -> Layout:
        """Draw the next mixture of each client."""
        draws = np.broadcast_to(times_allocated(known), clients)
        return self._mixed(draws, classes, seed)

    def _mixed(self, draws: IntArray, classes: int, seed: int) -> Layout:
        demand = np.broadcast_to(1.0, (len(draws), classes))
        main = self.mains(len(draws), seed)
        counts = self.counts(main, draws, seed)
        return Layout(demand, main, counts / counts.sum(axis=1, keepdims=True))

    def mains(self, clients: int, seed: int) -> IntArray:
        """Draw the main distribution of each client, shape (clients,)."""
        rng = generator(seed, "mixture-main")
        return rng.permutation(np.arange(clients) % self.clusters)

    def counts(self, main: IntArray, draws: IntArray, seed: int) -> IntArray:
        """Draw how many training samples of each distribution the clients get.

        Parameters
        ----------
        main, draws : int arrays of shape (clients,)
            Each client's main distribution, and how often it got samples before.
        seed : int

        Returns
        -------
        int array of shape (clients, K)
        """
        counts = np.empty((len(main), self.clusters), np.int64)
        for draw in np.unique(draws):
            rows = draws == draw
            counts[rows] = self._counts(main, int(draw), seed)[rows]
        return counts

    def _counts(self, main: IntArray, draw: int, seed: int) -> IntArray:
        # Row by row from one generator each: further clients change nothing.
        sizes, shares, splits = (
            generator(seed, f"mixture-{name}", draw)
            for name in ("sizes", "shares", "splits")
        )
        clients, others = len(main), self.clusters - 1
        least, most = (self.samples or size for size in self.sizes)
        total = sizes.integers(least, most, clients, endpoint=True)
        # Whole samples within the bounds; rounded, as 0.9 * 10 is more than 9.
        low = np.ceil(np.round(self.main[0] * total, 9)).astype(np.int64)
        high = np.floor(np.round(self.main[1] * total, 9)).astype(np.int64)
        span = np.maximum(high - low, 0) + 1
        own = low + (shares.random(clients) * span).astype(np.int64)
        split = splits.dirichlet(np.full(others, self.others), clients)
        rest = apportion(split, total - own)
        counts = np.column_stack([own, rest])
        place = (main[:, None] + np.arange(self.clusters)) % self.clusters
        return np.take_along_axis(counts, place.argsort(axis=1), axis=1)

    def allocate_samples(
        self,
        pools: Pools,
        allocation: Allocation,
        number: int,
        seed: int,
        before: SamplePair | None,
    ) -> SamplePair:
        """Return the indices of the samples of each client, drawn with replacement.

        A client's are drawn when they are asked for: a run allocates them anew so often
        that all of them would fill the memory.
        """
        del number, before
        for pool in pools:
            self._count_domains(pool)
        main, draws = allocation.layout.groups, allocation.draws
        counts = self.counts(main, draws, seed)
        tests = counts.sum(axis=1)
        if self.test_samples is not None:
            tests = np.full(len(main), self.test_samples)
        tested = apportion(counts / counts.sum(axis=1, keepdims=True), tests)
        train, test = (
            Drawn(partial(self.hand, len(pool.labels), each, draws, purpose, seed))
            for pool, each, purpose in zip(
                pools, (counts, tested), ("deal", "deal-test"), strict=True
            )
        )
        return train, test

    @staticmethod
    def hand(
        size: int,
        counts: IntArray,
        draws: IntArray,
        purpose: str,
        seed: int,
        client: int,
    ) -> IntArray:
        """Draw one client's samples, as its number of them of each distribution says.

        Parameters
        ----------
        size : int
            Samples in the pool.
        counts : int array of shape (clients, K)
        draws : int array of shape (clients,)
            How often each client was allocated samples before.
        purpose : {"deal", "deal-test"}
            For training or for testing.
        seed, client : int
        """
        rng = generator(seed, f"mixture-{purpose}", int(draws[client]), client)
        turn = np.repeat(np.arange(counts.shape[1]), counts[client])
        return np.sort(turn * size + rng.integers(0, size, len(turn)))


@dataclass(frozen=True)
class Drawn:
    """Samples that are drawn when they are asked for.

    Attributes
    ----------
    draw : callable
        Returns one client's indices.
    """

    draw: Callable[[int], IntArray]

    def __getitem__(self, client: int, /) -> IntArray:
        """Return the indices of one client's samples."""
        return self.draw(client)


def apportion(shares: FloatArray, totals: IntArray) -> IntArray:
    """Split whole numbers by shares, each part off by less than 1.

    Parameters
    ----------
    shares : array of shape (n, K)
        Rows that sum to 1.
    totals : int array of shape (n,)

    Examples
    --------
    >>> apportion(np.array([[0.5, 0.3, 0.2]]), np.array([4])).tolist()
    [[2, 1, 1]]
    """
    ends = np.rint(np.cumsum(shares, axis=1) * totals[:, None]).astype(np.int64)
    parts: IntArray = np.diff(ends, prepend=0)
    return parts
