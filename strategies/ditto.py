"""Ditto: a global model, and on each device a model of its own near it.

Li et al., "Ditto: Fair and Robust Federated Learning Through Personalization" (ICML
2021; Algorithm 1). In each round participants receive the global model omega, train it,
and train their own model v on f(v) + lambda/2 ||v - omega||^2. The trained omegas are
averaged; v stays on the device, and is the model that the client is served.

Server keeps: one model. Leaves the device: the trained global model (d floats).
"""

from __future__ import annotations

from typing import Literal

from cfl_flower.engine.method import Published
from cfl_flower.settings import NonNegative, settings
from cfl_flower.state import StrategySettings
from strategies.fedavg import FedAvg


@settings("strategy")
class DittoSettings(StrategySettings):
    """Ditto's settings."""

    client: str = "clients.ditto.DittoClient"
    regularisation: NonNegative = 0.05
    """lambda, how strongly models are held near the global model omega. For plain SGD
    to converge, lambda * eta must stay below 2."""
    start: Literal["omega", "initial"] = "omega"
    """Start of a personal model: omega as received in its first round, or w_0."""


class Ditto(FedAvg):
    """FedAvg on the server; `DittoClient` trains and keeps the served model."""

    Settings = DittoSettings
    published = Published("the global model, not the clients' own ones")
