"""The server's own samples of the clients' distributions, and tests of models on them.

In a simulation they are drawn from the samples that clients train on, so that no test
sample is ever seen by the server; on a real server they are files of its own. A model
that did not change is not tested again. Each core tests blocks of samples; block
results are summed in the order of the samples, so that the bits do not depend on the
cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from cfl_flower.data.reading.pool import Dataset, Pool
from cfl_flower.data.worlds.partition import Partition
from cfl_flower.data.worlds.timeline import Timeline
from cfl_flower.data.worlds.view import View
from cfl_flower.data.worlds.world import Look
from cfl_flower.environment.machine import usable_cores
from cfl_flower.errors import ConfigError
from cfl_flower.learning.testing import evaluate
from cfl_flower.models import FlatModel
from cfl_flower.models.outside import has_hooks
from cfl_flower.models.own_state import own_layers
from cfl_flower.seeding import generator
from cfl_flower.types import FloatArray, IntArray, Vector


class Samples(NamedTuple):
    """Samples of one distribution: inputs (n, *shape) and labels (n,)."""

    x: Tensor
    y: Tensor


@dataclass(frozen=True)
class Distribution:
    """One of the K distributions that clients hold, or mix."""

    weights: FloatArray
    """The relative frequency of each label, shape (L,)."""
    degrees: float
    """Rotation of the images."""
    relabel: IntArray
    """The label that clients give to samples of each label, shape (L,)."""
    domain: int
    """The number of the samples' dataset in a hybrid."""
    looks: IntArray | None = None
    """The look of each label's samples, as a number of `shown`, shape (L,)."""
    shown: tuple[tuple[Look, ...], ...] = ((),)
    """The transformations that make up each look."""

    def draw(self, pool: Pool, size: int, rng: Generator) -> Samples:
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
        fault = f"strategy.public_dir={root} has no folders"
        remedy = "put one there for each distribution, with samples as dataset says"
        raise ConfigError(f"{fault}; {remedy}")
    loaded = [dataset.load(str(path))[0] for path in folders]
    return [Samples(pool.inputs(slice(None)), pool.y) for pool in loaded]


class Validation:
    """K sets of samples, and the network that is tested on them, a thread per core."""

    def __init__(
        self, model: FlatModel, sets: Sequence[Samples], threads: int | None = None
    ) -> None:
        # One thread for each sum: one in parallel would depend on the number of cores.
        torch.set_num_threads(1)
        self._pool = ThreadPoolExecutor(
            threads or usable_cores(), "validation", torch.set_num_threads, (1,)
        )
        # A layer of somebody's own may keep one call's outputs for the next.
        module = model.module
        self._map = map if own_layers(module) or has_hooks(module) else self._pool.map
        self._model = model
        self._sets = list(sets)
        self._known: dict[int, tuple[Vector, tuple[float, float]]] = {}

    @property
    def sizes(self) -> IntArray:
        """The number of samples of each set, shape (K,)."""
        return np.array([len(each.y) for each in self._sets], np.int64)

    def losses(self, model: Vector) -> FloatArray:
        """Return a model's mean cross-entropy on each set, shape (K,)."""
        return np.array([self._test(model, each)[0] for each in self._sets])

    def own(self, models: Sequence[Vector]) -> list[tuple[float, float]]:
        """Return the mean loss and the accuracy of model k on set k, for all k.

        A vector that was tested before is not tested again, so that models must not be
        changed in place.
        """
        pairs = zip(models, self._sets, strict=False)
        for place, (model, samples) in enumerate(pairs):
            if place not in self._known or self._known[place][0] is not model:
                self._known[place] = model, self._test(model, samples)
        return [self._known[place][1] for place in range(len(models))]

    def _test(self, model: Vector, samples: Samples) -> tuple[float, float]:
        network = self._model.load(model)
        loss, correct = evaluate(network, samples.x, samples.y, self._map)
        return loss, correct / len(samples.y)
