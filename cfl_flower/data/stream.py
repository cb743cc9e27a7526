"""What each client holds in each round of a simulation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cfl_flower.data.datasets import Dataset, Pool
from cfl_flower.data.drift import Drift, period_of
from cfl_flower.data.partition import Layout, Partition, deal_once, draw
from cfl_flower.seeding import generator
from cfl_flower.types import IntArray


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
        moved = np.ones(len(layout.concepts), bool)
        before: tuple[list[IntArray], list[IntArray]] = ([], [])
        if period:
            moved = layout.concepts != self.concepts.layouts[period - 1].concepts
            before = ([], []) if moved.all() else self._hands(period - 1)
        sources = (
            (self._train, self._partition.samples, "deal"),
            (self._test, self._partition.test_samples, "deal-test"),
        )
        train, test = (
            _redeal(pool.labels, layout, moved, hands, count, rng)
            for (pool, count, purpose), hands in zip(sources, before, strict=True)
            for rng in [generator(self._seed, purpose, period)]
        )
        return train, test


def _redeal(
    labels: IntArray,
    layout: Layout,
    moved: NDArray[np.bool_],
    hands: list[IntArray],
    count: int | None,
    rng: np.random.Generator,
) -> list[IntArray]:
    """Return the samples of each client; those that did not move keep theirs."""
    demand = layout.per_client
    if moved.all():
        if count is None:
            return deal_once(labels, demand, rng)
        return draw(labels, demand, np.full(len(demand), count), rng)
    result = list(hands)
    rows = np.flatnonzero(moved)
    counts = np.array([len(hands[row]) for row in rows], np.int64)
    for row, hand in zip(rows, draw(labels, demand[rows], counts, rng), strict=True):
        result[row] = hand
    return result
