"""The client of methods with a shared extractor and a personal classifier.

Computes: its classifier with the extractor frozen, then the extractor with the
classifier frozen; a test of both. Sends: the extractor. Keeps: its classifier.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from torch import Tensor

from cfl_flower.client.requests import EvaluateRequest
from cfl_flower.learning.decoupling import (
    initial_classifier,
    represent,
    train_classifier,
)
from cfl_flower.learning.gradients import Loss
from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.models import Split
from cfl_flower.seeding import generator
from cfl_flower.types import Config, Evaluated, Reply, Vector
from clients.base import ClusteredClient
from clients.tested import Samples, Test


class DecoupledClient(ClusteredClient):
    """Trains the classifier, then the extractor; saves the classifier."""

    fine_tunes = True

    def fit(self, parameters: list[Vector], config: Config) -> Reply:
        """Train both parts on the data of this round and send the extractor."""
        x, y = self.samples(self.context.round)
        classifier = self.classifier(self.context.round)
        model = self.load(self.split.join(parameters[0], classifier))
        # FedRep, Algorithm 1: the head, then the representation.
        classifier = self.fit_classifier(classifier, represent(model, x), y)
        extractor = self.fit_extractor(parameters[0], classifier, (x, y))
        self.context.state.save(self.context.round, {"classifier": classifier})
        return [extractor], len(y), {}

    def starting_model(self, parameters: list[Vector]) -> Vector:
        """Return the received extractor with this client's last classifier."""
        return self.split.join(parameters[0], self.classifier(self.context.round))

    @property
    def split(self) -> Split:
        """The places of extractor and classifier in a model."""
        return self.context.model.split

    def classifier(self, before: int) -> Vector:
        """Return this client's own classifier as of before a round."""
        own = self.context.state.load(before).get("classifier")
        return self.first_classifier() if own is None else own

    def first_classifier(self) -> Vector:
        """Return the random classifier of a client that has not trained yet."""
        rng = generator(self.context.seed, "classifier", client=self.context.client)
        return initial_classifier(self.split, rng)

    def classifier_training(self) -> LocalTraining:
        """Return the optimiser's settings for the classifier."""
        epochs = self.settings.classifier_epochs
        rate = self.settings.classifier_rate
        return replace(
            self.local, steps=None, epochs=epochs, learning_rate=rate, mu=0.0
        )

    def fit_classifier(
        self,
        classifier: Vector,
        representations: Tensor,
        y: Tensor,
        purpose: str = "classifier-batches",
        local: LocalTraining | None = None,
    ) -> Vector:
        """Return the classifier, trained on a frozen extractor's output, (n, D).

        ``purpose`` seeds the draws of the batches; ``local`` replaces the optimiser's
        settings.
        """
        local = local or self.classifier_training()
        rng = self.rng(purpose)
        return train_classifier(self.split, classifier, representations, y, local, rng)

    def fit_extractor(
        self,
        extractor: Vector,
        classifier: Vector,
        samples: Samples,
        loss: Loss | None = None,
    ) -> Vector:
        """Return the extractor, trained under a frozen classifier.

        A ``loss`` replaces the cross-entropy.
        """
        start = self.split.join(extractor, classifier)
        part = self.split.part
        trained, _ = self.train_from(start, samples=samples, loss=loss, part=part)
        return self.split.divide(trained)[0]

    def evaluate(self, parameters: list[Vector], config: Config) -> Evaluated:
        """Save what the server made of the participants' results, then test."""
        tested = 1 if EvaluateRequest.of(config).test else 0
        if returned := parameters[tested:]:
            self.adopt(returned)
        return super().evaluate(parameters[:tested], config)

    def adopt(self, arrays: list[Vector]) -> None:
        """Save the returned classifier in place of the trained one."""
        state = self.context.state
        server_round = self.context.round
        state.save(server_round, {**state.at(server_round), "classifier": arrays[0]})

    def make_test(self, parameters: list[Vector]) -> Test:
        """Return the test of the fresh extractor with this client's classifier."""
        extractor = parameters[0]
        classifier = self.classifier(self.context.upcoming)
        if self.settings.fine_tuning:
            classifier = self.fine_tune(extractor, classifier)
        shift = self.label_shift()
        test = self.context.evaluator.evaluate_split
        return partial(test, extractor, classifier, shift=shift)

    def fine_tune(self, extractor: Vector, classifier: Vector) -> Vector:
        """Return the classifier after some more epochs, without saving it."""
        local = self.fine_tuning_of(self.classifier_training())
        x, y = self.samples(self.context.round)
        if len(y) == 0:
            return classifier
        model = self.load(self.split.join(extractor, classifier))
        z = represent(model, x)
        return self.fit_classifier(classifier, z, y, "fine-tuning", local)
