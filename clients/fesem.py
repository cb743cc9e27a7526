"""FeSEM's client: trains the model it receives.

Computes and sends what every client does. If clients migrate it keeps its last trained
model, and sends the number of the nearest to that when its label counts shifted.
"""

from __future__ import annotations

from collections.abc import Sequence

from cfl_flower.client.state import ClientState
from cfl_flower.clustering.similarity import nearest_model
from cfl_flower.types import Vector
from clients.base import Config, Reply
from clients.families.choosing import ChoosingClient


class FeSEMClient(ChoosingClient):
    """Keeps its last trained model for a migration."""

    reports_loss = True

    @property
    def trained(self) -> ClientState:
        """Its last trained model, which has versions of its own."""
        return self.context.state.part("trained")

    def fit(self, parameters: list[Vector], config: Config) -> Reply:
        """Train as all do, and keep the model."""
        arrays, count, metrics = super().fit(parameters, config)
        if self.context.settings.migration:
            self.trained.save(self.context.round, {"model": arrays[0]})
        return arrays, count, metrics

    def choose(
        self, received: Sequence[Vector], config: Config, server_round: int
    ) -> int:
        """Return the model nearest to the last trained one, at first the initial."""
        last = self.trained.load(before=self.context.upcoming).get("model")
        return nearest_model(self.context.initial() if last is None else last, received)
