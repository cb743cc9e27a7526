"""FeSEM: clusters by the Euclidean distance of models.

Xie et al., "Multi-Center Federated Learning" (2021; stochastic expectation
maximisation). Each round: participants train their cluster's model -> the server puts
each of them into the cluster whose model is nearest to the one it returned (E step) ->
average per cluster (M step).

Server keeps: m models. Leaves the device: the trained model (d floats).

Deviations and readings:

* The m models start from independent seeds. A client that joins has trained nothing: as
  in FlexCFL's code its model is the initial one, which all clients share, so all start
  in one cluster. Trained models stay near the one they started from, so they rarely
  leave it; FlexCFL's paper reports the same.
* The E step follows the upload, as in the paper, and uses the models before the
  average; FlexCFL's code makes it when a client is next selected, which would keep n
  models at the server.
* With `migration` a client whose label counts shifted fetches all models and goes to
  the one nearest to its last trained model, which it keeps (FlexCFL's FeSEM-MIG). The
  models lie in every test message; only those who needed them are charged.
* Clients are tested with their current cluster's model; in FlexCFL's comparison a group
  is tested on all clients that it ever had.
* Models are averaged plainly. FlexCFL's published figures come from code in which a
  group takes only its first client's update; here means are means.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfl_flower.clustering.similarity import nearest_model
from cfl_flower.communication.results import Results
from cfl_flower.state import Weighting
from cfl_flower.types import Result
from strategies.choosing import ChoosingSettings, ChoosingStrategy


@dataclass(frozen=True)
class FeSEMSettings(ChoosingSettings):
    """FeSEM's settings."""

    weighting: Weighting = "plain"


class FeSEM(ChoosingStrategy):
    """Stochastic expectation maximisation over m centres."""

    Settings = FeSEMSettings

    def welcome(self, round: int, newcomers: list[Result]) -> None:
        """Put newcomers where the initial model is nearest."""
        nearest = nearest_model(self.initial_model(), self.state.models)
        self.admit(round, newcomers, [nearest] * len(newcomers))

    def absorb_train(self, round: int, results: Results) -> None:
        """Assign participants to the nearest model, then average per cluster."""
        rows = self.rows(result.client for result in results)
        models = self.state.models
        nearest = [nearest_model(result.arrays[0], models) for result in results]
        self.state.clusters[rows] = np.array(nearest, np.int64)
        super().absorb_train(round, results)
