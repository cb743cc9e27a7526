"""APFL's client: trains the global model, and one of its own within their mixture.

Computes: for each mini-batch a step of both. Sends: the global model (d floats). Keeps:
its own model and alpha (d + 1 floats), which never leave it.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from cfl_flower.learning.gradients import TRAINING_PASSES, gradient_writer
from cfl_flower.learning.optimizer import add_penalties, stepper
from cfl_flower.learning.testing import switch_mode
from cfl_flower.learning.training import batches, least_batch
from cfl_flower.types import Config, Reply, Vector
from clients.base import ClusteredClient


def next_alpha(alpha: float, apart: Tensor, gradient: Tensor, rate: float) -> float:
    """Return alpha - eta <v - w, g>, within 0 and 1.

    ``apart`` is v - w, and ``gradient`` g, that of the loss at the mixture, both (p,).
    """
    return min(max(alpha - rate * float(apart @ gradient), 0.0), 1.0)


class APFLClient(ClusteredClient):
    """Algorithm 1, on the device."""

    @torch.no_grad()
    def fit(self, parameters: list[Vector], config: Config) -> Reply:
        """Train parameters[0], the received w, and this client's v and alpha."""
        local = self.local
        start = parameters[0]
        x, y = self.samples(self.context.round)
        if len(y) == 0:
            return [start], 0, {}
        kept, alpha = self.own(start, before=self.context.round)
        shared = self.load(start)
        # A network of its own, as it has running statistics of its own.
        mixed = shared.clone().load(kept)
        own = mixed.weights.clone()
        centre = shared.weights.clone() if local.mu else None
        step_shared = stepper(shared.weights, shared.gradient, local)
        step_own = stepper(own, mixed.gradient, local)
        writers = [gradient_writer(each, settings=local) for each in (shared, mixed)]
        models = [(shared, writers[0]), (mixed, writers[1])]
        for model, _ in models:
            switch_mode(model, training=True)
        least = least_batch(shared, x)
        adapts = self.settings.adaptive
        for batch in batches(x, y, local, self.rng("batches"), least):
            # alpha v + (1 - alpha) w, at which v's gradient is taken.
            torch.lerp(shared.weights, own, alpha, out=mixed.weights)
            for model, write_gradient in models:
                write_gradient(*batch)
                add_penalties(model.gradient, model.weights, local, centre, None)
            share = alpha
            if adapts:
                apart = own - shared.weights
                # alpha <- alpha - eta <v - w, g>, once in a round.
                alpha = next_alpha(alpha, apart, mixed.gradient, local.learning_rate)
                adapts = False
            # The chain rule: v is in the mixture alpha times.
            mixed.gradient.mul_(share)
            # w <- w - eta grad f(w), and v by alpha times the mixture's gradient.
            step_shared()
            step_own()
        shared.passes += 2 * TRAINING_PASSES * local.count_samples(len(y), least)
        mixed.weights.copy_(own)
        state = {"model": mixed.to_vector(), "alpha": np.array([alpha])}
        self.context.state.save(self.context.round, state)
        return [shared.to_vector()], len(y), {}

    def served(self, parameters: list[Vector]) -> Vector:
        """Return alpha v + (1 - alpha) w; w if this client has not trained yet."""
        received = parameters[0]
        own, alpha = self.own(received, before=self.context.upcoming)
        count = len(self.context.model.weights)
        weights = alpha * own[:count] + (1 - alpha) * received[:count]
        return np.concatenate([weights.astype(np.float32), own[count:]])

    def own(self, received: Vector, before: int) -> tuple[Vector, float]:
        """Return v and alpha as of before a round; v is at first the received w."""
        model = self.saved_model(before)
        if model is None:
            return received, self.settings.alpha
        return model, float(self.context.state.load(before)["alpha"][0])
