"""The server's own samples of the clients' distributions: CCFL's public sets.

In a simulation they are drawn from the samples that clients train on, so that no test
sample is ever seen by the server; on a real server they are files of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from torch import Tensor

from cfl_flower.data.reading.pool import Dataset, Pool
from cfl_flower.data.worlds.partition import Partition
from cfl_flower.data.worlds.timeline import Timeline
from cfl_flower.data.worlds.view import View
from cfl_flower.data.worlds.world import Look
from cfl_flower.errors import ConfigError
from cfl_flower.seeding import generator
from cfl_flower.types import FloatArray, IntArray


@dataclass(frozen=True)
class Samples:
    """Samples of one distribution: inputs (n, *shape) and labels (n,)."""

    x: Tensor
    y: Tensor


@dataclass(frozen=True)
class Distribution:
    """One of the K distributions that clients hold, or mix."""

    weights: FloatArray
    """How frequent each label is, relative to the others, shape (L,)."""
    degrees: float
    """Rotation of the images."""
    relabel: IntArray
    """What the samples of a label are called, shape (L,)."""
    domain: int
    """Which of the datasets of a hybrid they are from."""
    looks: IntArray | None = None
    """How samples of each label look: numbers of `shown`, shape (L,)."""
    shown: tuple[tuple[Look, ...], ...] = ((),)
    """What is done to samples of each number."""

    def draw(self, pool: Pool, size: int, rng: np.random.Generator) -> Samples:
        """Draw samples from a pool, each at most once; all if they are not enough."""
        labels = pool.labels
        one = pool.domains is None
        here = np.ones(len(labels), bool) if one else pool.domains == self.domain
        counts = np.bincount(labels[here], minlength=len(self.weights))
        shares = self.weights / np.maximum(counts, 1)
        odds = np.where(here, shares[labels], 0.0)
        count = min(size, int(np.count_nonzero(odds)))
        rows = np.sort(rng.choice(len(odds), count, replace=False, p=odds / odds.sum()))
        view = View(pool, pool, rows, rows, self.degrees, self.relabel)
        return Samples(*replace(view, looks=self.looks, shown=self.shown).train())


def distributions(partition: Partition, timeline: Timeline) -> list[Distribution]:
    """Return the distributions that clients hold at the start, in order of concepts.

    Of mixtures, those that are mixed; else the clients' true concepts, each as the
    first client holds it that does.
    """
    world = timeline.world(1)
    classes = world.classes
    if len(partition.turns) > 1:
        even = np.ones(classes)
        names = np.arange(classes)
        return [Distribution(even, turn, names, 0) for turn in partition.turns]
    _, first = np.unique(timeline.concepts(1), return_index=True)
    return [
        Distribution(
            world.demand[client] * world.visible[client],
            float(world.degrees[client]),
            world.relabel[client],
            int(world.domains[client]),
            world.looks[client],
            world.shown,
        )
        for client in first.tolist()
    ]


def public_sets(
    found: list[Distribution], pool: Pool, size: int, seed: int, purpose: str
) -> list[Samples]:
    """Draw at most ``size`` samples of each distribution, others for each purpose."""
    return [
        each.draw(pool, size, generator(seed, purpose, number))
        for number, each in enumerate(found)
    ]


def sets_in_folders(dataset: Dataset, folder: str) -> list[Samples]:
    """Read the public sets of a real server: one folder for each, in order of names.

    Raises `ConfigError` if there is none, or one cannot be read as the dataset.
    """
    root = Path(folder).expanduser()
    folders = sorted(path for path in root.glob("*") if path.is_dir())
    if not folders:
        raise ConfigError(
            f"strategy.public_dir={root} has no folders; put one there for each "
            "distribution, with samples as dataset says"
        )
    loaded = [dataset.load(str(path))[0] for path in folders]
    return [Samples(pool.inputs(slice(None)), pool.y) for pool in loaded]
