"""Ditto's client: trains the global model, and keeps one of its own near it.

Computes: local SGD on both, with independent orders of batches, as StoCFL's client
does. Sends: the global model (d floats). Keeps: its own model (d floats), which never
leaves it.
"""

from __future__ import annotations

from dataclasses import replace

from cfl_flower.types import Config, Reply, Vector
from clients.base import ClusteredClient


class BilevelClient(ClusteredClient):
    """Minimises f(omega), and f(theta) + lambda/2 ||theta - omega||^2."""

    def train_global(self, omega: Vector, server_round: int | None = None) -> Vector:
        """Return the global model, trained on this client's data of a round."""
        trained, _ = self.train_from(omega, server_round=server_round, purpose="global")
        return trained

    def train_near(self, theta: Vector, omega: Vector) -> tuple[Vector, int]:
        """Return theta, trained near the received omega, and the number of samples."""
        # f(theta) + lambda/2 |theta - omega|^2: Ditto's objective, and StoCFL's eq. 3.
        local = replace(self.local, mu=self.settings.regularisation)
        return self.train_from(theta, local, anchor=omega)


class DittoClient(BilevelClient):
    """Algorithm 1 of Ditto, on the device."""

    def fit(self, parameters: list[Vector], config: Config) -> Reply:
        """Train the received omega, parameters[0], and this client's v near it."""
        omega = parameters[0]
        own = self.saved_model(before=self.context.round)
        if own is None:
            own = self.context.initial() if self.settings.start == "initial" else omega
        # Algorithm 1: v, near omega as it was received.
        trained, count = self.train_near(own, omega)
        self.context.state.save(self.context.round, {"model": trained})
        # Algorithm 1: omega, which is averaged.
        return [self.train_global(omega)], count, {}

    def served(self, parameters: list[Vector]) -> Vector:
        """Return this client's own model; the global one if it has none yet."""
        own = self.saved_model(before=self.context.upcoming)
        return parameters[0] if own is None else own
