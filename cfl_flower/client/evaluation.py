"""Tests of models on clients' data; a model that many clients share is tested once.

Virtual clients hold parts of one pool of test samples. A cluster's model that is served
to hundreds of them is tested once over the pool; each client counts its own samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear, log_softmax

from cfl_flower.data.reading.pool import Pool
from cfl_flower.data.worlds.view import Form, View, in_place
from cfl_flower.environment.files import write_atomically
from cfl_flower.learning.testing import Note, block_size, evaluate, switch_mode
from cfl_flower.models import FlatModel
from cfl_flower.types import FloatArray, IntArray, Vector


@dataclass(frozen=True)
class Predictions:
    """The predictions of a model for every sample of a pool."""

    log_shares: FloatArray
    """Logarithm of the probability of each label, shape (n, L)."""
    labels: IntArray
    """The most probable label, shape (n,)."""

    def shifted(self, rows: IntArray, shift: FloatArray) -> Predictions:
        """Return those of some samples, (m,), with ``shift``, (L,), added to logits."""
        scores = torch.from_numpy(self.log_shares[rows] + shift)
        shares = log_softmax(scores, 1).numpy()
        return Predictions(shares, shares.argmax(1))


class Evaluator:
    """The tests of one batch of tasks on the worker's network.

    ``sharers`` has, by the `id` of a model's vector, how many clients of the phase
    receive it, on any worker: how one is tested must not depend on the other tasks.
    """

    def __init__(self, model: FlatModel, sharers: Mapping[int, int]) -> None:
        self._model = model
        self._sharers = sharers
        self._predictions: dict[tuple[int, int, Form], Predictions] = {}
        self._represented: dict[tuple[int, int, Form], Tensor] = {}

    def _predicted(self, vector: Vector, pool: Pool, form: Form) -> Predictions:
        key = (id(vector), id(pool), form)
        if key not in self._predictions:
            model = self._model.load(vector)
            self._predictions[key] = predict_pool(model, pool, form)
        return self._predictions[key]

    def evaluate(
        self,
        vector: Vector,
        view: View,
        note: Note | None = None,
        shift: FloatArray | None = None,
    ) -> tuple[float, int]:
        """Return the mean cross-entropy and the correct answers on a client's samples.

        ``note`` is given logits, or logarithms of probabilities, and labels; ``shift``
        is added to all logits, shape (L,). Raises `ValueError` if there are no samples.
        """
        pool = view.test_pool
        indices = view.test_indices
        if not self._pays(vector, view, pool, len(indices)):
            model = self._model.load(vector)
            return evaluate(model, *view.test(), note=note, shift=shift)
        truth = view.test_labels
        correct = 0
        log_shares = np.empty(len(indices))
        for form, rows, places in view.by_form("test"):
            found = self._predicted(vector, pool, form)
            own = rows
            if shift is not None:
                found = found.shifted(rows, shift)
                own = np.arange(len(rows))
            log_shares[places] = found.log_shares[own, truth[places]]
            correct += int(np.count_nonzero(found.labels[own] == truth[places]))
            if note is not None:
                scores = torch.from_numpy(found.log_shares[own])
                note(scores, torch.from_numpy(truth[places]))
        return -float(log_shares.mean()), correct

    @torch.no_grad()
    def evaluate_split(
        self,
        extractor: Vector,
        classifier: Vector,
        view: View,
        note: Note | None = None,
        shift: FloatArray | None = None,
    ) -> tuple[float, int]:
        """Test a client's own classifier on an extractor that others receive, too.

        The representations of the pool are computed once for all classifiers. The two
        are the parts of a model (`models.Split`). ``note`` and ``shift`` are those of
        `evaluate`. Raises `ValueError` if there are no samples.
        """
        pool = view.test_pool
        indices = view.test_indices
        split = self._model.split
        if not self._pays(extractor, view, pool, len(indices)):
            model = self._model.load(split.join(extractor, classifier))
            return evaluate(model, *view.test(), note=note, shift=shift)
        parts = []
        for form, rows, places in view.by_form("test"):
            key = (id(extractor), id(pool), form)
            if key not in self._represented:
                model = self._model.load(split.join(extractor, classifier))
                self._represented[key] = represent_pool(model, pool, form)
            found = self._represented[key]
            parts.append((found[torch.from_numpy(rows).to(found.device)], places))
        rows_of = torch.from_numpy(split.rows(classifier)).to(found.device)
        points = in_place(parts)
        logits = linear(points, rows_of[:, :-1], rows_of[:, -1])
        if shift is not None:
            logits = logits + torch.from_numpy(shift).to(logits.device)
        labels = torch.from_numpy(view.test_labels).to(found.device)
        correct = int((logits.argmax(1) == labels).sum())
        if note is not None:
            note(logits, labels)
        return float(cross_entropy(logits, labels)), correct

    def _pays(self, vector: Vector, view: View, pool: Pool, tested: int) -> bool:
        """Return whether testing the whole pool costs less than each by itself."""
        # Clients with the same forms, of those that are served the model. A personal
        # model is not shared: another one may follow at its address.
        sharers = self._sharers.get(id(vector), 0) * view.alike
        return tested > 0 and sharers * tested >= len(pool.labels) * view.kinds


@torch.no_grad()
def predict_pool(model: FlatModel, pool: Pool, form: Form) -> Predictions:
    """Return a model's predictions for every sample of a pool, shown in a form."""
    switch_mode(model, training=False)
    blocks = [log_softmax(model.module(x), 1).cpu() for x in _blocks(pool, form)]
    log_shares = torch.cat(blocks)
    return Predictions(log_shares.numpy(), log_shares.argmax(1).numpy())


@torch.no_grad()
def represent_pool(model: FlatModel, pool: Pool, form: Form) -> Tensor:
    """Return the representations of a pool, shown in a form, shape (n, D)."""
    switch_mode(model, training=False)
    return torch.cat([model.extractor(x) for x in _blocks(pool, form)])


def _blocks(pool: Pool, form: Form) -> Iterator[Tensor]:
    count = len(pool.labels)
    size = block_size(pool.x)
    for start in range(0, count, size):
        yield form.show(pool, np.arange(start, min(start + size, count)))


def write_predictions(
    path: Path, server_round: int, view: View, scores: Sequence[Tensor]
) -> None:
    """Write a line for each test sample of a device, for its owner alone.

    The round, the sample's row in its table from 1 (or its place among the samples that
    are tested), its label, the prediction, and the probability of each label.
    """
    at = view.test_indices
    rows = view.test_pool.rows
    cases = np.arange(len(at)) if rows is None else rows[at]
    shares = torch.cat([*scores]).cpu().double().softmax(1).numpy()
    rounds = np.full(len(at), server_round)
    known = [rounds, cases + 1, view.test_labels, shares.argmax(1)]
    names = ["round", "case", "label", "prediction", *map(str, range(shares.shape[1]))]
    text = BytesIO()
    lines = np.column_stack([*known, shares])
    np.savetxt(text, lines, "%.9g", ",", header=",".join(names), comments="")
    write_atomically(path, text.getvalue(), mode=0o600)
