"""A client that chooses its cluster: FlexCFL, IFCA and FeSEM.

Computes: beside training and tests, its choice; with migration the label counts of the
next round's data. Sends: the number of the chosen cluster. Keeps: the label counts of
the data of its last choice.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from cfl_flower.client.requests import EvaluateRequest
from cfl_flower.types import Config, Metrics, Reply, Vector
from clients.base import ClusteredClient

CHOOSE = "choose"
"""Entry of a config that asks for the choice of a cluster among the received vectors.
"""
CHOSEN = "chosen"
"""Entry of a config that asks for another choice if the label counts shifted: the round
of the last choice that the server received."""
KEEP = "keep"
"""Entry of a config that asks to keep the trained model, for the next choice."""


class ChoosingClient(ClusteredClient):
    """Chooses when it joins, and again when its label counts shifted."""

    tests_received = True

    @abstractmethod
    def choose(self, received: Sequence[Vector], server_round: int) -> int:
        """Return the cluster that fits a round's data best.

        ``received`` is what clients compare themselves with, a vector for each cluster.
        """

    def candidates(self, sent: Sequence[Vector], config: Config) -> Sequence[Vector]:
        """Return a vector for each cluster; none if saved ones were lost."""
        return sent[1:] if EvaluateRequest.of(config).test else sent

    def answer(self, parameters: list[Vector], config: Config) -> Reply:
        """Answer the hello, or choose the first cluster."""
        upcoming = self.context.upcoming
        if CHOOSE in config:
            cluster = self.choose(parameters, upcoming)
            return [], len(self.data(upcoming).labels), {"cluster": cluster}
        if self.settings.migration:
            self.remember(upcoming)
        return super().answer(parameters, config)

    def report(
        self, config: Config, server_round: int, parameters: Sequence[Vector] = ()
    ) -> Metrics:
        """Choose again if the label counts shifted since the last choice.

        A choice that was lost on the way to the server is repeated.
        """
        labels = self.data(server_round).labels
        if CHOSEN not in config or len(labels) == 0:
            return {}
        taken = config[CHOSEN]
        before = self.context.state.part("choice").at(taken).get("counts")
        counts = np.bincount(labels, minlength=self.classes)
        if before is not None and not self.settings.shift.detects(counts, before):
            return {}
        candidates = self.candidates(parameters, config)
        if not candidates:
            return {"lost": True}
        cluster = self.choose(candidates, server_round)
        self.remember(server_round, taken)
        return {"cluster": cluster}

    def remember(self, server_round: int, taken: int | None = None) -> None:
        """Save the label counts of a round's data, beside those of the last choice."""
        labels = self.data(server_round).labels
        counts = np.bincount(labels, minlength=self.classes)
        self.context.state.part("choice").save(
            server_round - 1, {"counts": counts}, taken
        )
