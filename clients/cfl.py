"""CFL's client: trains its cluster's model, and may be served one from before a split.

Computes: local SGD; with `service=best` the training loss of its cluster's model and of
that model's ancestors. Sends: the trained model (d floats). Keeps: nothing.
"""

from __future__ import annotations

from cfl_flower.types import Vector
from clients.base import ClusteredClient


class CFLClient(ClusteredClient):
    """Chooses among its cluster's model and its ancestors, if they are sent."""

    def served(self, parameters: list[Vector]) -> Vector:
        """Return the model with the smallest training loss, the cluster's on a tie."""
        if len(parameters) == 1:
            return parameters[0]
        losses = self.losses(parameters, self.samples(self.context.round))
        return parameters[int(losses.argmin())]
