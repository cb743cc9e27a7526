"""What every client has, and how it tests what it is served.

Its data of a round, the local optimiser, draws; the test of a model, after fine-tuning
or by its label shares if the settings say so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np
import torch
from flwr.client import NumPyClient
from numpy.random import Generator
from torch import Tensor

from cfl_flower.client.attacks import spoil_labels, spoil_report
from cfl_flower.client.context import ClientContext
from cfl_flower.client.evaluation import write_predictions
from cfl_flower.client.requests import EvaluateRequest
from cfl_flower.clustering.representations import log_label_shares
from cfl_flower.data.worlds.view import View
from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.learning.outcomes import Outcomes
from cfl_flower.learning.testing import evaluate, information
from cfl_flower.learning.training import train
from cfl_flower.models import FlatModel
from cfl_flower.seeding import generator
from cfl_flower.types import (
    OUTCOMES,
    Config,
    Evaluated,
    FloatArray,
    IntArray,
    Metrics,
    Vector,
)

Tested: TypeAlias = tuple[float, int]
"""The mean cross-entropy and the number of correct answers."""

Test: TypeAlias = Callable[..., Tested]
"""Tests on a view. Where measures are asked for, it is given ``note``, too, which takes
scores and labels (`learning.testing.Note`)."""

Samples: TypeAlias = tuple[Tensor, Tensor]
"""Inputs, (n, ...), and labels, (n,)."""


class TestedClient(NumPyClient):
    """A client's data, and the tests that it makes on them."""

    def __init__(self, context: ClientContext) -> None:
        self.context = context

    @property
    def settings(self) -> Any:
        """The strategy's settings."""
        return self.context.settings

    @property
    def classes(self) -> int:
        """The number of labels, L."""
        return self.context.stream.classes

    @cached_property
    def local(self) -> LocalTraining:
        """The local optimiser's settings, with the learning rate of this round."""
        local: LocalTraining = self.settings.local
        return local.in_round(self.context.round, self.context.stream.rounds)

    def rng(self, purpose: str, server_round: int | None = None) -> Generator:
        """Return this client's generator for a purpose in a round, or in the task's."""
        now = self.context.round if server_round is None else server_round
        return generator(self.context.seed, purpose, now, self.context.client)

    def load(self, model: Vector) -> FlatModel:
        """Load a model into the network."""
        return self.context.model.load(model)

    def data(self, server_round: int) -> View:
        """Return this client's data of a round."""
        return self.context.view(server_round)

    def samples(self, server_round: int) -> Samples:
        """Return the training samples and labels; a malicious client falsifies them."""
        return self.samples_of(self.data(server_round))

    def samples_of(self, view: View) -> Samples:
        """Return the training samples and labels of a view; see `samples`."""
        x, y = view.train()
        if attack := self.context.attack:
            classes = self.classes
            y = torch.from_numpy(spoil_labels(attack, y.cpu().numpy(), classes)).to(y)
        return x, y

    def labels(self, server_round: int) -> IntArray:
        """Return the training labels of a round; a malicious client falsifies them."""
        labels = self.data(server_round).labels
        return spoil_labels(self.context.attack, labels, self.classes)

    def falsified(self, report: Vector) -> Vector:
        """Return what a client tells about its data; a malicious one falsifies it."""
        context = self.context
        return spoil_report(context.attack, report, context.seed, context.client)

    def test(self, parameters: list[Vector], request: EvaluateRequest) -> Evaluated:
        """Test the served model on this round's data, or on the next round's.

        Parameters
        ----------
        parameters : list of Vector
            The served model, then what the method sends beside.
        request : EvaluateRequest
            What is to be counted, and on which data.

        Returns
        -------
        float, int, dict
            The mean loss, the number of tested samples, and metrics: the correct
            answers of all tests.
        """
        context = self.context
        own = self.data(context.upcoming if request.ahead else context.round)
        wide = own.tests != "own"
        view = own.everything() if wide else own
        count = len(view.test_indices)
        if count == 0:
            return 0.0, 0, {}
        # Before the test: what a device trains to use a model is its work.
        test = self.make_test(parameters)
        found: Metrics = {}
        with context.model.uncounted():
            outcomes = Outcomes(request.outcomes) if request.outcomes else None
            scores: list[Tensor] = []

            def note(logits: Tensor, labels: Tensor) -> None:
                scores.append(logits)
                if outcomes:
                    outcomes.note(logits, labels)

            noting = outcomes or context.predictions
            loss, correct = test(view, note=note) if noting else test(view)
            found["correct"] = correct
            if outcomes:
                found[OUTCOMES] = outcomes.to_bytes()
            if context.predictions:
                write_predictions(context.predictions, context.round, view, scores)
            if wide and len(own.test_indices):
                found["own_correct"] = test(own)[1]
                found["own_tested"] = len(own.test_indices)
            if len(own.held_out):
                found["validation_correct"] = test(own.validation())[1]
                found["validation_tested"] = len(own.held_out)
        return loss, count, found

    def test_unlabelled(self, among: list[Vector], config: Config) -> Metrics:
        """Test the model that the test samples choose; labels do no more than score it.

        Parameters
        ----------
        among : list of Vector
            The `ClusteredStrategy.unlabelled_choice`.
        config : dict
            The entries of the task, an `EvaluateRequest` among them.

        Returns
        -------
        dict
            The correct answers, of how many; empty without test samples.
        """
        ahead = EvaluateRequest.of(config).ahead
        view = self.data(self.context.upcoming if ahead else self.context.round)
        x, y = view.test()
        if len(y) == 0:
            return {}
        with self.context.model.uncounted():
            chosen = self.load(self.choose_unlabelled(among, x))
            correct = evaluate(chosen, x, y)[1]
        return {"unlabelled_correct": correct, "unlabelled_tested": len(y)}

    def choose_unlabelled(self, among: list[Vector], x: Tensor) -> Vector:
        """Return the model whose predictions tell most of samples, (n, ...)."""
        told = [information(self.load(model), x) for model in among]
        return among[int(np.argmax(told))]

    def make_test(self, parameters: list[Vector]) -> Test:
        """Return a function that tests this client's predictions on a view.

        Parameters
        ----------
        parameters : list of Vector
            What `evaluate` received.

        Returns
        -------
        callable
            From a view to the mean loss and the number of correct answers.
        """
        return self.tester(self.fine_tuned(self.served(parameters)))

    def tester(self, model: Vector) -> Test:
        """Return a function that tests a model, by the client's label shares if set."""
        shift = self.label_shift()
        return partial(self.context.evaluator.evaluate, model, shift=shift)

    def label_shift(self) -> FloatArray | None:
        """Return what a test adds to all logits, (L,), None for nothing.

        It is that of the training samples of the round, by `log_label_shares`.
        """
        if not self.settings.label_shares:
            return None
        return log_label_shares(self.labels(self.context.round), self.classes)

    def fine_tuned(self, model: Vector) -> Vector:
        """Return a model after the epochs before a test, if any; nothing is saved."""
        if not self.settings.fine_tuning:
            return model
        loaded = self.load(model)
        local = self.fine_tuning_of(self.local)
        samples = self.samples(self.context.round)
        train(loaded, *samples, local, self.rng("fine-tuning"))
        return loaded.to_vector()

    def fine_tuning_of(self, local: LocalTraining) -> LocalTraining:
        """Return an optimiser's settings with fine-tuning's epochs and rate."""
        epochs = self.settings.fine_tuning
        rate = self.settings.fine_tuning_rate
        return replace(local, steps=None, epochs=epochs, learning_rate=rate)

    def served(self, parameters: list[Vector]) -> Vector:
        """Return the model that this client uses for its own predictions."""
        return parameters[0]
