"""FedBABU's client: trains the extractor under the common initial classifier.

Computes: the extractor; before a test, some epochs of the whole model. Sends: the
extractor. Keeps: nothing.
"""

from __future__ import annotations

from cfl_flower.types import Config, Reply, Vector
from clients.families.decoupled import DecoupledClient
from clients.tested import Test


class FedBABUClient(DecoupledClient):
    """Trains the extractor alone; fine-tunes the whole model before a test."""

    fine_tunes = True

    def fit(self, parameters: list[Vector], config: Config) -> Reply:
        """Train the extractor on the data of this round."""
        samples = self.samples(self.context.round)
        classifier = self.first_classifier()
        # Algorithm 1: the body alone is trained.
        extractor = self.fit_extractor(parameters[0], classifier, samples)
        return [extractor], len(samples[1]), {}

    def first_classifier(self) -> Vector:
        """Return the classifier of the common initial model."""
        return self.split.divide(self.context.initial())[1]

    def make_test(self, parameters: list[Vector]) -> Test:
        """Return the test of the whole model after its fine-tuning."""
        if not self.settings.fine_tuning:
            return super().make_test(parameters)
        whole = self.split.join(parameters[0], self.first_classifier())
        # The whole model is fine-tuned, for the evaluation alone.
        return self.tester(self.fine_tuned(whole))
