"""FedAvg-FT's client: trains the global model, and fine-tunes it before a test.

Computes: local training; before a test, some more epochs. Sends: the trained model (d
floats). Keeps: nothing.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from cfl_flower.learning.training import train
from cfl_flower.types import Vector
from clients.base import ClusteredClient, Test


def fine_tuned(client: ClusteredClient, model: Vector) -> Vector:
    """Return a model after more epochs on its client's training data of this round.

    Momentum, batches and weight decay are those of `local`. Nothing is saved.
    """
    context = client.context
    settings = context.settings
    epochs = settings.fine_tuning
    rate = settings.fine_tuning_rate
    local = replace(client.local, steps=None, epochs=epochs, learning_rate=rate)
    loaded = client.load(model, context.upcoming)
    train(loaded, *client.samples(context.round), local, client.rng("fine-tuning"))
    return loaded.to_vector()


class FedAvgFTClient(ClusteredClient):
    """FedAvg's client, whose tests are of a fine-tuned model."""

    def make_test(self, parameters: list[Vector]) -> Test:
        """Return the test of the global model after its fine-tuning."""
        model = fine_tuned(self, parameters[0])
        return partial(self.context.evaluator.evaluate, model)
