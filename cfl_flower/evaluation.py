"""Tests of models on clients' data; a model that many clients share, only once.

Virtual clients hold parts of one pool of test samples. A cluster's model that hundreds
of them are served is tested once over the pool, and each client counts its own samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import log_softmax

from cfl_flower.data.pool import Pool
from cfl_flower.data.rotation import rotate
from cfl_flower.data.stream import View
from cfl_flower.models import FlatModel
from cfl_flower.training import evaluate, switch_mode
from cfl_flower.types import FloatArray, IntArray, Vector

BLOCK = 512
"""Samples in one forward pass; fixed, so that the sums are the same on every worker."""


@dataclass(frozen=True)
class Answers:
    """What a model says about every sample of a pool.

    Attributes
    ----------
    log_shares : array of shape (n, L)
        Logarithm of the probability of each label.
    labels : int array of shape (n,)
        The most probable label.
    """

    log_shares: FloatArray
    labels: IntArray


class Evaluator:
    """The tests of one batch of tasks.

    Parameters
    ----------
    model : FlatModel
        The worker's network.
    sharers : mapping of int to int
        By the `id` of a model's vector, how many clients of the phase receive it, on
        whatever worker: which way a client is tested must not depend on its neighbours.
    """

    def __init__(self, model: FlatModel, sharers: Mapping[int, int]) -> None:
        self._model, self._sharers = model, sharers
        self._answers: dict[tuple[int, int, float], Answers] = {}

    def _answered(self, vector: Vector, pool: Pool, degrees: float) -> Answers:
        key = (id(vector), id(pool), degrees)
        if key not in self._answers:
            model = self._model.load(vector)
            self._answers[key] = answer_pool(model, pool, degrees)
        return self._answers[key]

    def evaluate(self, vector: Vector, view: View) -> tuple[float, int]:
        """Return the mean cross-entropy and the correct answers on a client's samples.

        Raises
        ------
        ValueError
            If there is nothing to test on.
        """
        pool, indices = view.test_pool, view.test_indices
        # Those who are turned alike, of those who are served it. A model of a client's
        # own is not for sharing: another one may follow at its address.
        sharers = self._sharers.get(id(vector), 0) * view.alike
        answered = len(pool.labels) * len(view.turns)
        if sharers * len(indices) < answered or len(indices) == 0:
            return evaluate(self._model.load(vector), *view.test())
        truth, correct = view.test_labels, 0
        log_shares = np.empty(len(indices))
        for angle, rows, place in view.by_angle(pool, indices):
            answers = self._answered(vector, pool, angle)
            log_shares[place] = answers.log_shares[rows, truth[place]]
            correct += int(np.count_nonzero(answers.labels[rows] == truth[place]))
        return -float(log_shares.mean()), correct


@torch.no_grad()
def answer_pool(model: FlatModel, pool: Pool, degrees: float = 0.0) -> Answers:
    """Return what a model says about every sample of a pool, turned by an angle."""
    switch_mode(model, training=False)
    starts = range(0, len(pool.labels), BLOCK)
    parts = (pool.inputs(slice(start, start + BLOCK)) for start in starts)
    blocks = [log_softmax(model.module(rotate(x, degrees)), 1).cpu() for x in parts]
    log_shares = torch.cat(blocks)
    return Answers(log_shares.numpy(), log_shares.argmax(1).numpy())
