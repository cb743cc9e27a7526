"""Flash's client: stops training when an epoch hardly lowers the loss.

Computes: local SGD, and after each epoch the loss on some of its training samples.
Sends: the trained model (d floats). Keeps: nothing.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from cfl_flower.learning.testing import evaluate
from cfl_flower.learning.training import train
from cfl_flower.types import Config, Reply, Vector
from clients.base import ClusteredClient


class FlashClient(ClusteredClient):
    """The client of Algorithm 1."""

    def fit(self, parameters: list[Vector], config: Config) -> Reply:
        """Train the received model until it hardly improves."""
        settings = self.settings
        start = parameters[0]
        x, y = self.samples(self.context.round)
        rng = self.rng("batches")
        order = torch.from_numpy(rng.permutation(len(y))).to(y.device)
        held = order[: int(settings.validation * len(y))]
        kept = order[len(held) :]
        model = self.load(start)
        epoch_of = replace(self.local, epochs=1)
        # FedProx's term is near the received model in every epoch.
        anchor = model.weights.clone()
        last: float | None = None
        for epoch in range(1 if self.local.steps else self.local.epochs):
            train(model, x[kept], y[kept], epoch_of, rng, anchor=anchor)
            if len(held):
                loss, _ = evaluate(model, x[held], y[held])
                # gamma / (e + 1): an epoch that lowers the loss by less is the last.
                if last is not None and 0 < last - loss < settings.stop / (epoch + 1):
                    break
                last = loss
        return [model.to_vector()], len(y), {}
