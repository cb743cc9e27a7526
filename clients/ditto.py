"""Ditto's client: trains the global model, and keeps one of its own near it.

Computes: local SGD on both. Sends: the global model (d floats). Keeps: its own model
(d floats), which never leaves it.
"""

from __future__ import annotations

from cfl_flower.types import Vector
from clients.base import Config, Reply
from clients.families.bilevel import BilevelClient


class DittoClient(BilevelClient):
    """Algorithm 1 of Ditto, on the device."""

    def fit(self, parameters: list[Vector], config: Config) -> Reply:
        """Train the received omega, parameters[0], and this client's v near it."""
        context = self.context
        omega = parameters[0]
        own = self.own(before=context.round)
        if own is None:
            own = context.initial() if context.settings.start == "initial" else omega
        trained, count = self.train_near(own, omega)
        context.state.save(context.round, {"model": trained})
        return [self.train_global(omega)], count, {}

    def served(self, parameters: list[Vector]) -> Vector:
        """Return this client's own model; the global one if it has none yet."""
        own = self.own(before=self.context.upcoming)
        return parameters[0] if own is None else own

    def own(self, before: int) -> Vector | None:
        """Return this client's own model as of before a round."""
        return self.saved_model(self.context.state, before)
