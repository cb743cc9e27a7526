"""What each client holds in each round of a simulation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

import numpy as np
import torch
from torch import Tensor

from cfl_flower.data.datasets import Dataset
from cfl_flower.data.drift import Drift
from cfl_flower.data.partition import Hands, Partition
from cfl_flower.data.pool import Pool
from cfl_flower.data.rotation import rotate
from cfl_flower.data.world import Timeline, World
from cfl_flower.seeding import generator
from cfl_flower.types import IntArray


@dataclass(frozen=True)
class View:
    """A client's data in one round, as indices into the shared pools.

    Attributes
    ----------
    degrees : float
        Rotation of the images.
    relabel : int array of shape (L,)
        What the client calls the samples of a label.
    """

    train_pool: Pool
    test_pool: Pool
    train_indices: IntArray
    test_indices: IntArray
    degrees: float
    relabel: IntArray

    @property
    def labels(self) -> IntArray:
        """Training labels as the client calls them, shape (n,)."""
        return self.relabel[self.train_pool.labels[self.train_indices]]

    @property
    def test_labels(self) -> IntArray:
        """Test labels as the client calls them, shape (n,)."""
        return self.relabel[self.test_pool.labels[self.test_indices]]

    def train(self) -> tuple[Tensor, Tensor]:
        """Return the training samples and labels."""
        return self._take(self.train_pool, self.train_indices, self.labels)

    def test(self) -> tuple[Tensor, Tensor]:
        """Return the test samples and labels."""
        return self._take(self.test_pool, self.test_indices, self.test_labels)

    def _take(
        self, pool: Pool, indices: IntArray, labels: IntArray
    ) -> tuple[Tensor, Tensor]:
        device = pool.x.device
        x = pool.inputs(torch.from_numpy(indices).to(device))
        return rotate(x, self.degrees), torch.from_numpy(labels).to(device)


class Stream:
    """All clients' data in all rounds; a client is a view by index.

    Parameters
    ----------
    dataset, partition, drift : settings
    clients : int
    seed : int
    rounds : int
        Of the run.
    data_dir : str
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
        rounds: int,
        data_dir: str = "",
        device: str = "cpu",
    ) -> None:
        self.classes, self.clients = dataset.classes, clients
        self.timeline = Timeline(
            partition, drift.events, clients, dataset.classes, seed, rounds
        )
        self._partition, self._seed = partition, seed
        train, test = dataset.load(data_dir)
        self._pools = train.to(device), test.to(device)
        self._dealt: dict[int, Hands] = {}
        self._shared = partition.shared_samples(train.labels, seed)
        # Those of a round and of the next one.
        self._views = lru_cache(maxsize=2 * clients)(self._make_view)

    def view(self, client: int, round: int) -> View:
        """Return the data of one client in one round."""
        return self._views(client, self.timeline.first_round(round))

    def fingerprint(self) -> str:
        """Return 16 bytes, in hexadecimal, that name what all clients hold.

        A hash of the samples and names of labels in the first and in the last period.
        """
        state = blake2b(digest_size=16)
        for round in sorted({1, *self.timeline.rounds[-1:]}):
            for client in range(self.clients):
                view = self.view(client, round)
                for part in (view.train_indices, view.test_indices, view.relabel):
                    state.update(np.ascontiguousarray(part, np.int64).tobytes())
                state.update(np.float64(view.degrees).tobytes())
        return state.hexdigest()

    def _make_view(self, client: int, round: int) -> View:
        world = self.timeline.world(round)
        train, test = (self._indices(world, client, part) for part in (0, 1))
        released = float(world.released[client])
        if released < 1:
            order = generator(self._seed, "release", 0, client).permutation(train)
            train = np.sort(order[: round_up(released * len(order))])
        train = np.concatenate([train, self._shared]) if len(self._shared) else train
        degrees, relabel = float(world.degrees[client]), world.relabel[client]
        return View(*self._pools, train, test, degrees, relabel)

    def _indices(self, world: World, client: int, part: int) -> IntArray:
        """Collect a client's samples of one pool, label by label if it must be."""
        deals, sources = world.deal[client], world.source[client]
        visible = world.visible[client]
        number, source = int(deals[0]), int(sources[0])
        if visible.all() and (deals == number).all() and (sources == source).all():
            return self._hands(world, number)[part][source]
        labels, parts = self._pools[part].labels, []
        for number, source in np.unique(np.stack([deals, sources]), axis=1).T:
            wanted = visible & (deals == number) & (sources == source)
            hand = self._hands(world, int(number))[part][source]
            parts.append(hand[wanted[labels[hand]]])
        return np.sort(np.concatenate(parts))

    def _hands(self, world: World, number: int) -> Hands:
        if number not in self._dealt:
            before = self._hands(world, 0) if number else None
            self._dealt[number] = self._partition.hands(
                self._pools, world.deals[number], number, self._seed, before
            )
        return self._dealt[number]


def round_up(value: float) -> int:
    """Return the smallest integer of at least a value, safe against 0.1 + 0.2."""
    return int(np.ceil(round(value, 9)))
