"""What each client holds in each round of a simulation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import chain

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
    alike : float
        Share of all clients that have the same rotation.
    """

    train_pool: Pool
    test_pool: Pool
    train_indices: IntArray
    test_indices: IntArray
    degrees: float
    relabel: IntArray
    alike: float = 1.0

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
        self.classes, self.rounds = dataset.classes, rounds
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
        """Return 16 bytes, in hexadecimal, that name what clients hold in the run."""
        state = blake2b(digest_size=16)
        for round in [1, *self.timeline.rounds]:
            if round > self.rounds:
                break
            world = self.timeline.world(round)
            state.update(repr(round).encode())
            for name in ("deal", "source", "relabel", "degrees", "visible", "released"):
                state.update(np.ascontiguousarray(getattr(world, name)).tobytes())
        for number in range(len(world.deals)):
            for hand in chain(*self._hands(world, number)):
                state.update(hand.tobytes())
        state.update(self._shared.tobytes())
        return state.hexdigest()

    def _make_view(self, client: int, round: int) -> View:
        world = self.timeline.world(round)
        train, test = (self._indices(world, client, part) for part in (0, 1))
        if len(self._shared):
            labels = self._pools[0].labels[self._shared]
            arrived = self._shared[world.visible[client][labels]]
            train = np.concatenate([train, arrived])
        degrees, relabel = float(world.degrees[client]), world.relabel[client]
        alike = float(np.mean(world.degrees == degrees))
        return View(*self._pools, train, test, degrees, relabel, alike)

    def _indices(self, world: World, client: int, part: int) -> IntArray:
        """Collect a client's samples of one pool, label by label if it must be."""
        deals, sources = world.deal[client], world.source[client]
        visible = world.visible[client]
        released = float(world.released[client]) if part == 0 else 1.0
        labels, parts = self._pools[part].labels, []
        origins = zip(deals.tolist(), sources.tolist(), strict=True)
        for number, source in sorted(set(origins)):
            hand = self._hands(world, number)[part][source]
            if released < 1:
                rng = generator(self._seed, f"release/{number}", 0, source)
                share = max(1, round_up(released * len(hand)))
                hand = np.sort(rng.permutation(hand)[:share])
            wanted = visible & (deals == number) & (sources == source)
            parts.append(hand if wanted.all() else hand[wanted[labels[hand]]])
        return parts[0] if len(parts) == 1 else np.sort(np.concatenate(parts))

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
