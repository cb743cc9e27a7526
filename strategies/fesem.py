"""FeSEM: clusters by the Euclidean distance of models.

Xie et al., "Multi-Center Federated Learning" (2021; stochastic expectation
maximisation). In each round participants train their cluster's model; the server puts
each of them into the cluster whose model is nearest to the one it returned (E step);
every cluster's model becomes the mean of its participants' (M step).

Server keeps: m models. Leaves the device: the trained model (d floats).
"""

from __future__ import annotations

import numpy as np

from cfl_flower.clustering.similarity import nearest_model
from cfl_flower.communication.results import Results
from cfl_flower.engine.method import Disclosure
from cfl_flower.settings import settings
from cfl_flower.state import Weighting
from cfl_flower.types import Result
from strategies.families.choosing import ChoosingSettings, ChoosingStrategy


@settings("strategy")
class FeSEMSettings(ChoosingSettings):
    """FeSEM's settings."""

    client: str = "clients.fesem.FeSEMClient"
    weighting: Weighting = "plain"


class FeSEM(ChoosingStrategy):
    """Stochastic expectation maximisation over m centres."""

    Settings = FeSEMSettings
    discloses = Disclosure(singly=True)

    def welcome(self, server_round: int, newcomers: list[Result]) -> None:
        """Put newcomers into the cluster whose model is nearest to the initial one."""
        nearest = nearest_model(self.run.initial_model(), self.state.models)
        self.admit(server_round, newcomers, [nearest] * len(newcomers))

    def absorb_train(self, server_round: int, results: Results) -> None:
        """Assign participants to the nearest model (E step), then average (M step)."""
        rows = self.state.rows(result.client for result in results)
        models = self.state.models
        nearest = [nearest_model(result.arrays[0], models) for result in results]
        self.state.clusters[rows] = np.array(nearest, np.int64)
        super().absorb_train(server_round, results)
