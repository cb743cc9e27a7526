"""A client that trains the global model, and another one near it: Ditto and StoCFL.

Computes: local SGD on both, with independent orders of batches.
"""

from __future__ import annotations

from dataclasses import replace

from cfl_flower.types import Vector
from clients.base import ClusteredClient


class BilevelClient(ClusteredClient):
    """Minimises f(omega), and f(theta) + lambda/2 ||theta - omega||^2."""

    def train_global(self, omega: Vector, server_round: int | None = None) -> Vector:
        """Return the global model, trained on this client's data of a round."""
        trained, _ = self.train_from(omega, server_round=server_round, purpose="global")
        return trained

    def train_near(self, theta: Vector, omega: Vector) -> tuple[Vector, int]:
        """Return theta, trained near the received omega, and the number of samples."""
        local = replace(self.local, mu=self.context.settings.regularisation)
        return self.train_from(theta, local, anchor=omega)
