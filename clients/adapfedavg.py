"""Adaptive-FedAvg's client: trains with the learning rate that comes with the model.

Computes: local SGD. Sends: the trained model (d floats). Keeps: nothing.
"""

from __future__ import annotations

from dataclasses import replace

from cfl_flower.types import Config, Reply, Vector
from clients.base import ClusteredClient

RATE = "learning_rate"
"""Entry of a config: the rate to train with, in the place of that of the settings."""


class AdapFedAvgClient(ClusteredClient):
    """FedAvg's client at the server's learning rate."""

    def fit(self, parameters: list[Vector], config: Config) -> Reply:
        """Train the received model on the data of this round."""
        local = replace(self.local, learning_rate=config[RATE])
        trained, count = self.train_from(parameters[0], local)
        return [trained], count, {}
