"""The client of methods with a shared extractor and a personal classifier.

Computes: its classifier with the extractor frozen, then the extractor with the
classifier frozen; a test of both. Sends: the extractor. Keeps: its classifier.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from torch import Tensor

from cfl_flower.client.requests import EvaluateRequest
from cfl_flower.data.worlds.stream import View
from cfl_flower.learning.decoupling import (
    initial_classifier,
    represent,
    train_classifier,
)
from cfl_flower.learning.training import LocalTraining, Loss, train
from cfl_flower.models import FlatModel, Split
from cfl_flower.seeding import generator
from cfl_flower.types import Vector
from clients.base import ClusteredClient, Config, Metrics, Reply, Tested


class DecoupledClient(ClusteredClient):
    """Trains the classifier first and the extractor next; keeps the classifier."""

    def fit(self, parameters: list[Vector], config: Config) -> Reply:
        """Train both parts on the data of this round and send the extractor."""
        x, y = self.samples(self.context.round)
        classifier = self.classifier(self.context.round)
        model = self.load(parameters[0], classifier, self.context.round)
        classifier = self.fit_classifier(classifier, represent(model, x), y)
        extractor = self.fit_extractor(parameters[0], classifier, x, y)
        self.context.state.save(self.context.round, {"classifier": classifier})
        return [extractor], len(y), {}

    def starting_model(self, parameters: list[Vector]) -> Vector:
        """Return the received extractor with this client's classifier of before."""
        return self.split.join(parameters[0], self.classifier(self.context.round))

    @property
    def split(self) -> Split:
        """Where a model holds the classifier."""
        return self.context.model.split

    def classifier(self, before: int) -> Vector:
        """Return this client's own classifier as of before a round."""
        own = self.context.state.load(before).get("classifier")
        return self.first_classifier() if own is None else own

    def first_classifier(self) -> Vector:
        """Return the classifier of a client that never trained: drawn by itself."""
        context = self.context
        rng = generator(context.seed, "classifier", client=context.client)
        return initial_classifier(self.split, rng)

    def load(self, extractor: Vector, classifier: Vector, before: int) -> FlatModel:
        """Load both parts, with this client's own running statistics if it has any."""
        model = self.split.join(extractor, classifier)
        return self.context.model.load(self.with_own_buffers(model, before))

    def classifier_training(self) -> LocalTraining:
        """Return the optimiser's settings for the classifier."""
        settings = self.context.settings
        epochs = settings.classifier_epochs
        rate = settings.classifier_rate
        return replace(
            self.local, steps=None, epochs=epochs, learning_rate=rate, mu=0.0
        )

    def fit_classifier(
        self, classifier: Vector, representations: Tensor, y: Tensor
    ) -> Vector:
        """Return the classifier, trained on a frozen extractor's output, (n, D)."""
        settings = self.classifier_training()
        rng = self.rng("classifier-batches")
        return train_classifier(
            self.split, classifier, representations, y, settings, rng
        )

    def fit_extractor(
        self,
        extractor: Vector,
        classifier: Vector,
        x: Tensor,
        y: Tensor,
        loss: Loss | None = None,
    ) -> Vector:
        """Return the extractor, trained under a frozen classifier.

        A ``loss`` takes the place of the cross-entropy.
        """
        model = self.load(extractor, classifier, self.context.round)
        rng = self.rng("batches")
        part = self.split.part
        train(model, x, y, self.local, rng, loss=loss, part=part)
        received = self.split.join(extractor, classifier)
        return self.split.divide(self.keep_buffers(model.to_vector(), received))[0]

    def evaluate(
        self, parameters: list[Vector], config: Config
    ) -> tuple[float, int, Metrics]:
        """Take over what the server made of all participants' results, then test."""
        tested = 1 if EvaluateRequest.of(config).test else 0
        if returned := parameters[tested:]:
            self.adopt(returned)
        return super().evaluate(parameters[:tested], config)

    def adopt(self, arrays: list[Vector]) -> None:
        """Keep the classifier that came back instead of the one that was sent."""
        state = self.context.state
        server_round = self.context.round
        state.save(server_round, {**state.at(server_round), "classifier": arrays[0]})

    def make_test(self, parameters: list[Vector]) -> Callable[[View], Tested]:
        """Return the test of the fresh extractor with this client's classifier."""
        after = self.context.upcoming
        extractor = parameters[0]
        classifier = self.classifier(after)
        if self.context.settings.fine_tuning:
            classifier = self.fine_tune(extractor, classifier)
        if self.keeps_buffers:
            model = self.split.join(extractor, classifier)
            own = self.with_own_buffers(model, after)
            return partial(self.context.evaluator.evaluate, own)
        return partial(self.context.evaluator.evaluate_split, extractor, classifier)

    def fine_tune(self, extractor: Vector, classifier: Vector) -> Vector:
        """Return the classifier after some more epochs, which are not kept."""
        context = self.context
        settings = self.context.settings
        epochs = settings.fine_tuning
        rate = settings.fine_tuning_rate
        local = replace(self.classifier_training(), epochs=epochs, learning_rate=rate)
        x, y = self.samples(context.round)
        if len(y) == 0:
            return classifier
        z = represent(self.load(extractor, classifier, context.upcoming), x)
        rng = self.rng("fine-tuning")
        return train_classifier(self.split, classifier, z, y, local, rng)
