"""Clients that mix several distributions: the data of CCFL."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from cfl_flower.data.worlds.allocation import SamplePair
from cfl_flower.data.worlds.partition import DEALT, Known, Partition, Pools
from cfl_flower.data.worlds.world import Allocation, Layout, times_allocated
from cfl_flower.seeding import generator
from cfl_flower.settings import (
    Count,
    Positive,
    require,
    require_memory,
    settings,
)
from cfl_flower.types import FloatArray, IntArray


@settings("partition")
class Mixtures(Partition):
    """Each client mixes K distributions, one of them its main one: the data of CCFL.

    Distribution k is the whole dataset, turned by k * 360 / K degrees. A new allocation
    keeps a client's main distribution. What a client gets follows from the seed, its id
    and how often it was allocated samples before, and from nothing else.
    """

    unused: ClassVar[tuple[str, ...]] = (*DEALT, "rotations", "shifts")
    """Inherited settings without effect, which are refused."""

    test_samples: Count | None = 500
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

    def check_size(self, clients: int, classes: int) -> None:
        """Raise `ConfigError` if so many clients or samples need more memory."""
        super().check_size(clients, classes)
        needed = 80 * self.clusters * clients
        require_memory("partition.clusters", self.clusters, needed)
        require_memory("partition.sizes", self.sizes, 24 * self.sizes[1])

    def layout(self, clients: int, classes: int, known: Known, seed: int) -> Layout:
        """Draw the next mixture of each client."""
        main = self.mains(clients, seed)
        draws = np.broadcast_to(times_allocated(known), clients)
        counts = self.counts(main, draws, seed)
        shares = counts / counts.sum(axis=1, keepdims=True)
        return Layout(np.broadcast_to(1.0, (clients, classes)), main, shares)

    def mains(self, clients: int, seed: int) -> IntArray:
        """Draw the main distribution of each client, shape (clients,)."""
        rng = generator(seed, "mixture-main")
        return rng.permutation(np.arange(clients) % self.clusters)

    def counts(self, main: IntArray, draws: IntArray, seed: int) -> IntArray:
        """Draw how many training samples of each distribution the clients get.

        By each client's main distribution and how often it got samples before, both of
        shape (clients,). Returns the shape (clients, K).
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
        clients = len(main)
        others = self.clusters - 1
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
        self, pools: Pools, allocation: Allocation, seed: int, first: SamplePair | None
    ) -> SamplePair:
        """Return the indices of the samples of each client, drawn with replacement."""
        for pool in pools:
            self._count_domains(pool)
        main = allocation.layout.groups
        draws = allocation.draws
        counts = self.counts(main, draws, seed)
        sums = counts.sum(axis=1)
        tests = np.full(len(main), self.test_samples) if self.test_samples else sums
        tested = apportion(counts / sums[:, None], tests)
        return (
            DrawnSamples(len(pools[0].labels), counts, draws, "deal", seed),
            DrawnSamples(len(pools[1].labels), tested, draws, "deal-test", seed),
        )


@dataclass(frozen=True)
class DrawnSamples:
    """Samples that are drawn when a client's are asked for.

    A run allocates them anew so often that all of them would fill the memory.
    """

    size: int
    """Samples in the pool."""
    counts: IntArray
    """Number of samples of each distribution that a client gets, shape (clients, K)."""
    draws: IntArray
    """Number of earlier allocations of each client, shape (clients,)."""
    purpose: Literal["deal", "deal-test"]
    """Use of the samples: training or testing."""
    seed: int

    def __getitem__(self, client: int, /) -> IntArray:
        """Return the indices of one client's samples."""
        draw = int(self.draws[client])
        rng = generator(self.seed, f"mixture-{self.purpose}", draw, client)
        turn = np.repeat(np.arange(self.counts.shape[1]), self.counts[client])
        return np.sort(turn * self.size + rng.integers(0, self.size, len(turn)))


def apportion(shares: FloatArray, totals: IntArray) -> IntArray:
    """Split whole numbers, shape (n,), by rows of shares, each part off by less than 1.

    Examples
    --------
    >>> apportion(np.array([[0.5, 0.3, 0.2]]), np.array([4])).tolist()
    [[2, 1, 1]]
    """
    ends = np.rint(np.cumsum(shares, axis=1) * totals[:, None]).astype(np.int64)
    return np.diff(ends, prepend=0)
