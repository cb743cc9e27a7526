"""Adaptive-FedAvg's client: trains with the learning rate that comes with the model.

Computes: local SGD. Sends: the trained model (d floats). Keeps: nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cfl_flower.client.requests import Request
from cfl_flower.types import Vector
from clients.base import ClusteredClient
from clients.tested import Config, Reply


@dataclass(frozen=True)
class RateRequest(Request):
    """A request to train with another learning rate than that of the settings."""

    learning_rate: float


class AdapFedAvgClient(ClusteredClient):
    """FedAvg's client at the server's learning rate."""

    def fit(self, parameters: list[Vector], config: Config) -> Reply:
        """Train the received model on the data of this round."""
        request = RateRequest.from_config(config)
        assert request is not None
        local = replace(self.local, learning_rate=request.learning_rate)
        trained, count = self.train_from(parameters[0], local)
        return [trained], count, {}
