"""The client of methods without rounds: trains what it received, and uploads it.

Computes: local training, proximal if mu > 0, from the received model on its present
data; tests of the model that it uploads and, on a real device, of the one it received.
Sends: the trained model (d floats), the time stamp of the model that it started from.
Keeps: nothing.
"""

from __future__ import annotations

from typing import Any

from cfl_flower.types import Scalar, Vector
from clients.base import ClusteredClient


class AsynchronousClient(ClusteredClient):
    """A client that answers every model with a better one for its own data."""

    def fit(
        self, parameters: list[Vector], config: dict[str, Any]
    ) -> tuple[list[Vector], int, dict[str, Scalar]]:
        """Train from what was received; say how good both models are here."""
        metrics: dict[str, Scalar] = {"stamp": int(config["stamp"])}
        start, shares = self.begin(parameters)
        if config.get("tested"):
            metrics |= self.tested("after", start)
        # A client may train several times on the data of one round of the server.
        trained, count = self.train_from(start, purpose=f"cycle-{config['cycle']}")
        metrics |= self.tested("before", trained)
        return [trained, *shares], count, metrics

    def begin(self, parameters: list[Vector]) -> tuple[Vector, list[Vector]]:
        """Return the model to start from, and what is uploaded beside the trained."""
        return parameters[0], []

    def tested(self, name: str, model: Vector) -> dict[str, Scalar]:
        """Return a model's test on this client's own test samples, if it has any."""
        around = self.around
        view = self.data(around.round)
        count = len(view.test_indices)
        if count == 0:
            return {}
        loss, correct = around.evaluator.evaluate(model, view)
        found = {"correct": correct, "tested": count, "loss": loss}
        return {f"{name}_{key}": value for key, value in found.items()}
