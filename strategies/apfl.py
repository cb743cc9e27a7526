"""APFL: each client mixes a model of its own with the global one.

Deng, Kamani and Mahdavi, "Adaptive Personalized Federated Learning" (arXiv 2003.13461,
2020; Algorithm 1, adaptive alpha). For each mini-batch a participant steps its copy of
the global model along grad f(w), and its own v along the gradient, in v, of
f(alpha v + (1 - alpha) w). The w are averaged; v and alpha stay on the device, whose
predictions are those of the mixture.

Server keeps: one model. Leaves the device: the trained global model (d floats).
"""

from __future__ import annotations

from cfl_flower.engine.method import Published
from cfl_flower.settings import Fraction, settings
from cfl_flower.state import StrategySettings, Weighting
from strategies.fedavg import FedAvg


@settings("strategy")
class APFLSettings(StrategySettings):
    """APFL's settings."""

    client: str = "clients.apfl.APFLClient"
    weighting: Weighting = "plain"
    alpha: Fraction = 0.5
    """alpha, a client's share of its own model; at first, if it adapts."""
    adaptive: bool = True
    """Each client's alpha follows its gradient, once in a round."""


class APFL(FedAvg):
    """FedAvg on the server; `APFLClient` mixes what the client is served."""

    Settings = APFLSettings
    published = Published("the global model, not the clients' own ones")
