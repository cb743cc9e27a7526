"""Losses of models on the server's public samples, for CCFL.

Unchanged models are not tested again. Each core tests blocks of samples; block results
are summed in the order of the samples, so that the bits do not depend on the cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from cfl_flower.data.worlds.public import Samples
from cfl_flower.environment.machine import usable_cores
from cfl_flower.learning.testing import evaluate
from cfl_flower.models import FlatModel
from cfl_flower.types import FloatArray, IntArray, Vector


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
        spread = self._pool.map
        loss, correct = evaluate(network, samples.x, samples.y, spread)
        return loss, correct / len(samples.y)
