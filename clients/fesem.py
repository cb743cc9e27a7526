"""FeSEM's client: trains the model it receives.

Computes and sends what every client does. If clients migrate, or choose before they
train, it keeps its last trained model, and sends the number of the model nearest to it:
when its label counts shifted, or before each training.
"""

from __future__ import annotations

from collections.abc import Sequence

from cfl_flower.clustering.similarity import nearest_model
from cfl_flower.types import Config, Reply, Vector
from clients.families.choosing import KEEP, ChoosingClient


class FeSEMClient(ChoosingClient):
    """Saves its last trained model for a choice."""

    reports_loss = True

    def fit(self, parameters: list[Vector], config: Config) -> Reply:
        """Train the received model; save the result for a later choice, if any."""
        arrays, count, metrics = super().fit(parameters, config)
        if KEEP in config or self.settings.migration:
            trained = self.context.state.part("trained")
            trained.save(self.context.round, {"model": arrays[0]})
        return arrays, count, metrics

    def choose(self, received: Sequence[Vector], server_round: int) -> int:
        """Return the model nearest to the last trained one, or to the initial one."""
        last = self.own_model(before=self.context.upcoming, part="trained")
        return nearest_model(last, received)
