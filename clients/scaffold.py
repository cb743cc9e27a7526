"""SCAFFOLD's client: steps along the gradient corrected by two controls.

Computes: local SGD from x along g - c_i + c; its next control. Sends: the model and the
change of its control. Keeps: its control (p floats).
"""

from __future__ import annotations

import numpy as np
import torch

from cfl_flower.learning.training import least_batch
from cfl_flower.types import Config, FloatArray, Reply, Vector
from clients.base import ClusteredClient


def control_change(
    control: FloatArray, start: FloatArray, end: FloatArray, steps: int, rate: float
) -> FloatArray:
    """Return c_i+ - c_i = (x - y) / (K eta) - c: Algorithm 1, line 12, option II.

    ``control`` is the server's c, ``start`` and ``end`` are x and y, all of shape (p,).
    """
    return (start - end) / np.float32(steps * rate) - control


class ScaffoldClient(ClusteredClient):
    """Algorithm 1, lines 6 to 14."""

    def fit(self, parameters: list[Vector], config: Config) -> Reply:
        """Train parameters[0] with the server's control, parameters[1]."""
        context = self.context
        start, control = parameters
        count = len(control)
        state = context.state.part("control")
        own = state.load(context.round).get("own", np.zeros(count, np.float32))
        x, y = self.samples(context.round)
        # Steps are along g - c_i + c.
        correction = torch.from_numpy(control - own).to(x.device)
        trained, _ = self.train_from(start, samples=(x, y), correction=correction)
        if len(y) == 0:
            return [trained, np.zeros_like(control)], 0, {}
        steps = self.local.count_steps(len(y), least_batch(context.model, x))
        rate = self.local.learning_rate
        # Line 12, option II.
        change = control_change(control, start[:count], trained[:count], steps, rate)
        state.save(context.round, {"own": own + change})
        return [trained, change], len(y), {}
