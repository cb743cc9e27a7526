"""FedAvg-FT: FedAvg, and each client fine-tunes the model before it is tested.

Collins et al., "FedAvg with Fine Tuning: Local Updates Lead to Representation Learning"
(NeurIPS 2022). The rounds are FedAvg's. Before a test a client trains the global model
on its own data, and keeps nothing of it. It is the reference of methods whose clients
adapt a model of their own, such as FedBABU.

Server keeps: one model. Leaves the device: the trained model of a participant.
"""

from __future__ import annotations

from cfl_flower.engine.method import Published
from cfl_flower.settings import Count, Positive, settings
from cfl_flower.state import StrategySettings
from strategies.fedavg import FedAvg


@settings("strategy")
class FedAvgFTSettings(StrategySettings):
    """FedAvg-FT's settings."""

    client: str = "clients.fedavg_ft.FedAvgFTClient"
    fine_tuning: Count = 5
    """Epochs of the model on the client's training data before a test."""
    fine_tuning_rate: Positive = 0.01
    """Learning rate of fine-tuning."""


class FedAvgFT(FedAvg):
    """FedAvg on the server; `FedAvgFTClient` fine-tunes what it tests."""

    Settings = FedAvgFTSettings
    published = Published("the global model, which each client fine-tunes")
