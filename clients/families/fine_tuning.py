"""Fine-tuning before a test: what FedAvg-FT's and FedBABU's clients share."""

from __future__ import annotations

from dataclasses import replace

from cfl_flower.learning.training import train
from cfl_flower.types import Vector
from clients.base import ClusteredClient


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
