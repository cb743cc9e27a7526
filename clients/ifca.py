"""IFCA's client: chooses among all models by its training loss.

Computes: the loss of each model on its training data; local SGD on the best. Sends: its
choice and the trained model (d floats). Keeps: with migration, its label counts at
its last choice.
"""

from __future__ import annotations

from collections.abc import Sequence

from cfl_flower.types import Config, Reply, Vector
from clients.families.choosing import ChoosingClient


class IFCAClient(ChoosingClient):
    """Estimates its cluster by the smallest loss."""

    reports_loss = True

    def fit(self, parameters: list[Vector], config: Config) -> Reply:
        """Train the best of all models on the data of this round.

        One that receives a single model chose it before, or has no choice.
        """
        if len(parameters) == 1:
            return super().fit(parameters, config)
        # Algorithm 1: argmin of the loss over all models.
        cluster = self.choose(parameters, self.context.round)
        found = self.start_loss(parameters[cluster], config)
        trained, count = self.train_from(parameters[cluster])
        return [trained], count, {"cluster": cluster, **found}

    def choose(self, received: Sequence[Vector], server_round: int) -> int:
        """Return the model with the smallest training loss, the lowest id on a tie.

        A client without samples chooses the first.
        """
        return int(self.losses(received, self.samples(server_round)).argmin())

    def served(self, parameters: list[Vector]) -> Vector:
        """Return the model of its cluster, or the one with the smallest loss now."""
        if self.settings.tested == "last":
            return parameters[0]
        return parameters[self.choose(parameters, self.context.round)]
