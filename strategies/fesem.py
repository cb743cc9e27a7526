"""FeSEM: clusters by the Euclidean distance of models.

Xie et al., "Multi-Center Federated Learning" (2021; stochastic expectation
maximisation). In each round participants train their cluster's model; the server puts
each of them into the cluster whose model is nearest to the one it returned (E step);
every cluster's model becomes the mean of its participants' (M step). With secure sums,
where no server sees a single model, a participant chooses by the model that it trained
last, before it trains.

Server keeps: m models. Leaves the device: the trained model (d floats); with secure
sums a cluster's number.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cfl_flower.clustering.similarity import nearest_model
from cfl_flower.communication.results import Results
from cfl_flower.engine.method import Disclosure
from cfl_flower.settings import settings
from cfl_flower.state import Weighting
from cfl_flower.types import Plan, Result
from clients.families.choosing import KEEP
from strategies.families.choosing import CHOICE, ChoosingSettings, ChoosingStrategy


@settings("strategy")
class FeSEMSettings(ChoosingSettings):
    """FeSEM's settings."""

    client: str = "clients.fesem.FeSEMClient"
    weighting: Weighting = "plain"


class FeSEM(ChoosingStrategy):
    """Stochastic expectation maximisation over m centres."""

    Settings = FeSEMSettings
    discloses = Disclosure(singly="clusters participants' models", in_sums=CHOICE)

    def welcome(self, server_round: int, newcomers: list[Result]) -> None:
        """Put newcomers into the cluster whose model is nearest to the initial one."""
        nearest = nearest_model(self.run.initial_model(), self.state.models)
        self.admit(server_round, newcomers, [nearest] * len(newcomers))

    def plan_train(self, server_round: int) -> Plan:
        """Sample participants, who with secure sums make the E step themselves."""
        if not self.run.config.privacy.secure_sums:
            return super().plan_train(server_round)
        plan = self.plan_after_choices(server_round)
        return replace(plan, config={KEEP: True})

    def absorb_train(self, server_round: int, results: Results) -> None:
        """Assign participants to the nearest model (E step), then average (M step)."""
        if not self.run.config.privacy.secure_sums:
            rows = self.state.rows(result.client for result in results)
            models = self.state.models
            # E step: the nearest of the models from before the average.
            nearest = [nearest_model(result.arrays[0], models) for result in results]
            self.state.clusters[rows] = np.array(nearest, np.int64)
        # M step: the mean of each cluster's participants.
        super().absorb_train(server_round, results)
