"""What each client holds in each round of a simulation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from cfl_flower.data.datasets import Dataset, Pool
from cfl_flower.data.drift import Drift, period_of
from cfl_flower.data.partition import Layout, Partition, deal
from cfl_flower.seeding import generator
from cfl_flower.types import FloatArray, IntArray


class Concepts:
    """The true concept of every client in every round; needs no data.

    Concepts are numbered over the whole run: a label group has one number.
    """

    def __init__(
        self, partition: Partition, drift: Drift, clients: int, classes: int, seed: int
    ) -> None:
        self.rounds = list(drift.rounds)
        self.layouts = drift.layouts(partition, clients, classes, seed)

    def layout(self, round: int) -> Layout:
        """Return the layout that holds in a round."""
        return self.layouts[period_of(self.rounds, round)]

    def __call__(self, round: int) -> IntArray:
        """Return the true concept of each client, shape (clients,)."""
        return self.layout(round).concepts


@dataclass(frozen=True)
class View:
    """A client's data in one round, as indices into the shared pools."""

    train_pool: Pool
    test_pool: Pool
    train_indices: IntArray
    test_indices: IntArray

    @property
    def labels(self) -> IntArray:
        """Training labels, shape (n,)."""
        return self.train_pool.labels[self.train_indices]

    def train(self) -> tuple[Tensor, Tensor]:
        """Return the training samples and labels."""
        return self._take(self.train_pool, self.train_indices)

    def test(self) -> tuple[Tensor, Tensor]:
        """Return the test samples and labels."""
        return self._take(self.test_pool, self.test_indices)

    @staticmethod
    def _take(pool: Pool, indices: IntArray) -> tuple[Tensor, Tensor]:
        rows = torch.from_numpy(indices).to(pool.y.device)
        return pool.x.index_select(0, rows), pool.y.index_select(0, rows)


class Stream:
    """All clients' data in all rounds; a client is a view by index.

    Parameters
    ----------
    dataset, partition, drift : settings
    clients : int
    seed : int
    data_dir : str or None
    device : str
        Where torch finds the samples.
    """

    def __init__(
        self,
        dataset: Dataset,
        partition: Partition,
        drift: Drift,
        clients: int,
        seed: int,
        data_dir: str | None = None,
        device: str = "cpu",
    ) -> None:
        self.classes = dataset.classes
        self.concepts = Concepts(partition, drift, clients, dataset.classes, seed)
        self._partition, self._seed = partition, seed
        self._train, self._test = (p.to(device) for p in dataset.load(data_dir))
        # A round and the next one: more periods are never needed at a time.
        self._hands = lru_cache(maxsize=2)(self._deal)

    def view(self, client: int, round: int) -> View:
        """Return the data of one client in one round."""
        train, test = self._hands(period_of(self.concepts.rounds, round))
        return View(self._train, self._test, train[client], test[client])

    def _deal(self, period: int) -> tuple[list[IntArray], list[IntArray]]:
        """Deal anew to the clients that moved; the others keep their samples."""
        layout = self.concepts.layouts[period]
        moved = np.arange(len(layout.concepts))
        hands: tuple[list[IntArray], list[IntArray]] = ([], [])
        if period:
            before = self.concepts.layouts[period - 1].concepts
            moved = np.flatnonzero(layout.concepts != before)
            hands = self._hands(period - 1)
        demand = layout.per_client[moved]
        train, test = (
            self._redeal(pool, hand, moved, demand, count, (purpose, period))
            for pool, hand, count, purpose in (
                (self._train, hands[0], self._partition.samples, "deal"),
                (self._test, hands[1], self._partition.test_samples, "deal-test"),
            )
        )
        return train, test

    def _redeal(
        self,
        pool: Pool,
        hands: list[IntArray],
        moved: IntArray,
        demand: FloatArray,
        count: int | None,
        key: tuple[str, int],
    ) -> list[IntArray]:
        if len(moved) == 0:
            return hands
        released = np.arange(len(pool.labels))
        if hands:
            released = np.sort(np.concatenate([hands[client] for client in moved]))
        rng = generator(self._seed, *key)
        fresh = deal(pool.labels, released, demand, count, rng)
        result = list(hands) if hands else list(fresh)
        for client, hand in zip(moved, fresh, strict=True):
            result[client] = hand
        return result
