"""Ditto: a global model, and on each device a model of its own near it.

Li et al., "Ditto: Fair and Robust Federated Learning Through Personalization" (ICML
2021; Algorithm 1). In each round participants receive the global model omega, train it,
and train their own model v on f(v) + lambda/2 ||v - omega||^2. The trained omegas are
averaged; v stays on the device, and is the model that the client is served.

Server keeps: one model. Leaves the device: the trained global model (d floats).
"""

from __future__ import annotations

from cfl_flower.engine.method import Published
from strategies.families.bilevel import BilevelSettings
from strategies.fedavg import FedAvg


class Ditto(FedAvg):
    """FedAvg on the server; the served model is trained and kept by `DittoClient`."""

    Settings = BilevelSettings
    published = Published("the global model, not the clients' own ones")
