"""FedDrift's client: trains the best of all models, or a new one after a drift.

Computes: the loss of each model on its data, and after a change on those before; local
SGD. Sends: the trained model (d floats), the losses, which model it is. Keeps: nothing;
a device with data of its own, which cannot look at what they were, its smallest loss.
"""

from __future__ import annotations

import numpy as np

from cfl_flower.types import FloatArray, Vector
from clients.base import ClusteredClient, Config, Reply

NEW = -1
"""What it reports when it started a model of its own; see `strategies.feddrift`."""


class FedDriftClient(ClusteredClient):
    """Algorithm 1, lines 3 to 10."""

    def fit(self, parameters: list[Vector], config: Config) -> Reply:
        """Train the model that fits this round's data, one of all or a new one."""
        context = self.context
        losses = self.losses(parameters, context.round)
        chosen = int(losses.argmin())
        if self.drifted(parameters, losses):
            chosen = NEW
        start = context.initial() if chosen == NEW else parameters[chosen]
        start_losses = self.start_loss(start, config)
        trained, count = self.train_from(start)
        if context.folder is not None and count:
            best = np.array([losses.min()], np.float32)
            context.state.part("loss").save(context.round, {"best": best})
        data = losses.astype(np.float32).tobytes()
        return [trained], count, {"chosen": chosen, "losses": data, **start_losses}

    def drifted(self, models: list[Vector], losses: FloatArray) -> bool:
        """Return whether the best loss rose by more than delta since the last round."""
        before = self.best_before(models)
        rise = None if before is None else losses.min() - before
        return rise is not None and bool(rise > self.context.settings.delta)

    def best_before(self, models: list[Vector]) -> float | None:
        """Return the smallest loss on the data before, None if they are the same.

        On a device with data of its own that of its last training, by the models then.
        """
        context, round = self.context, self.context.round
        if context.folder is not None:
            kept = context.state.part("loss").load(round).get("best")
            return None if kept is None else float(kept[0])
        if round == 1:
            return None
        now, before = self.data(round), self.data(round - 1)
        if now is before or len(before.train_indices) == 0:
            return None
        return float(self.losses(models, round - 1).min())
