"""Which samples each client got, and so which labels it holds.

A layout says what clients wish for; what they get follows from the samples that there
are. Drifts of the labels that a client holds need the latter, so the server and every
worker draw it in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from cfl_flower.data.worlds.allocation import SamplePair
from cfl_flower.data.worlds.partition import Partition, Pools
from cfl_flower.data.worlds.world import World
from cfl_flower.types import BoolArray


class Holdings:
    """The samples that clients got in each allocation of a run.

    ``load`` returns the pools for training and for testing. It is called once, when
    anything is asked for: most drifts ask for nothing, and need no data loaded.
    """

    def __init__(
        self, partition: Partition, seed: int, load: Callable[[], Pools]
    ) -> None:
        self._partition = partition
        self._seed = seed
        self._load = load
        self._samples: dict[int, SamplePair] = {}
        self._labels: dict[int, BoolArray] = {}

    @cached_property
    def pools(self) -> Pools:
        """All samples, for training and for testing."""
        return self._load()

    def samples(self, world: World, number: int) -> SamplePair:
        """Return who got which samples in an allocation of a world."""
        if number not in self._samples:
            first = self.samples(world, 0) if number else None
            self._samples[number] = self._partition.allocate_samples(
                self.pools, world.allocations[number], self._seed, first
            )
        return self._samples[number]

    def labels(self, world: World, number: int) -> BoolArray:
        """Return of which labels each client got training samples in an allocation.

        By the original labels, shape (clients, L).
        """
        if number not in self._labels:
            pool = self.pools[0]
            train = self.samples(world, number)[0]
            found = np.zeros((world.clients, world.classes), bool)
            for client in range(world.clients):
                found[client, pool.labels_at(train[client])] = True
            self._labels[number] = found
        return self._labels[number]
