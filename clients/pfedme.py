"""pFedMe's client: a personal model near its copy of the global one.

Computes: for each mini-batch K steps of the personal model, one of the copy. Sends: the
copy (d floats). Keeps: the model that it is tested with (d floats).
"""

from __future__ import annotations

import torch

from cfl_flower.learning.gradients import TRAINING_PASSES, gradient_writer
from cfl_flower.learning.optimizer import clip_gradient
from cfl_flower.learning.testing import switch_mode
from cfl_flower.learning.training import batches, least_batch
from cfl_flower.types import Config, Reply, Vector
from clients.base import ClusteredClient


class PFedMeClient(ClusteredClient):
    """Algorithm 1, lines 5 to 8."""

    @torch.no_grad()
    def fit(self, parameters: list[Vector], config: Config) -> Reply:
        """Train on the data of this round; save the model that is tested."""
        settings = self.settings
        start = parameters[0]
        x, y = self.samples(self.context.round)
        model = self.load(start)
        switch_mode(model, training=True)
        theta = model.weights
        gradient = model.gradient
        copy = model.weights.clone()
        write_gradient = gradient_writer(model, settings=self.local)
        pull = settings.attraction
        rng = self.rng("batches")
        least = least_batch(model, x) if len(y) else 1
        for batch in batches(x, y, self.local, rng, least) if len(y) else ():
            for _ in range(settings.inner_steps):
                write_gradient(*batch)
                clip_gradient(gradient, self.local)
                # The gradient of f(theta) + lambda/2 |theta - w|^2.
                gradient.add_(theta - copy, alpha=pull)
                theta.add_(gradient, alpha=-self.local.learning_rate)
            # w <- w - eta lambda (w - theta).
            copy.add_(theta - copy, alpha=settings.outer_rate * pull)
        samples = self.local.count_samples(len(y), least)
        model.passes += TRAINING_PASSES * settings.inner_steps * samples
        personal = model.to_vector()
        theta.copy_(copy)
        local = model.to_vector()
        kept = local if settings.tested == "local" else personal
        self.context.state.save(self.context.round, {"model": kept})
        return [local], len(y), {}

    def served(self, parameters: list[Vector]) -> Vector:
        """Return this client's own model as of this round."""
        return self.own_model(before=self.context.upcoming)
