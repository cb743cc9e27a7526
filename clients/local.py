"""The client of `local`: trains and keeps its own model; no model is communicated.

Computes: local SGD from its own model. Sends: nothing. Keeps: its model (d floats).
"""

from __future__ import annotations

from cfl_flower.types import Vector
from clients.base import ClusteredClient, Config, Reply


class LocalClient(ClusteredClient):
    """A client that trains its own model, at first the common initial one."""

    def fit(self, parameters: list[Vector], config: Config) -> Reply:
        """Train this client's own model and keep it."""
        context = self.context
        trained, count = self.train_from(self.own_model(before=context.round))
        context.state.save(context.round, {"model": trained})
        return [], count, {}

    def served(self, parameters: list[Vector]) -> Vector:
        """Return this client's own model as of this round."""
        return self.own_model(before=self.context.upcoming)

    def starting_model(self, parameters: list[Vector]) -> Vector:
        """Return this client's own model as of before this round."""
        return self.own_model(before=self.context.round)
