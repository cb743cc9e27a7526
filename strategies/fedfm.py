"""FedFM: features aligned with global anchors.

Ye et al., "FedFM: Anchor-Based Feature Matching for Data Heterogeneity in Federated
Learning" (IEEE TSP 2023; Algorithm 1). FedAvg whose local loss has a contrastive term
towards the class anchors, from a round on. Each round: participants train -> each sends
its model and the mean representation of its classes -> models are averaged, and anchors
by the samples of each class.

Server keeps: the model and the anchors (L * D floats). Leaves the device: the model,
its anchors, its label counts (L floats).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from cfl_flower.communication.results import Results
from cfl_flower.engine.method import ClusteredStrategy
from cfl_flower.learning.anchors import no_anchors, parse_counts, presence_config
from cfl_flower.settings import Natural, NonNegative, Positive, settings
from cfl_flower.state import StrategySettings
from cfl_flower.types import Plan, Result
from strategies.families.decoupled import AnchorState


@settings("strategy")
class FedFMSettings(StrategySettings):
    """FedFM's settings."""

    waits = "start"
    idle_unless = StrategySettings.idle_unless | {"start": "alignment_weight"}

    client: str = "clients.fedfm.FedFMClient"
    needs_extractor: ClassVar[bool] = True

    alignment_weight: NonNegative = 1.0
    """lambda, weight of the contrastive loss."""
    temperature: Positive = 0.1
    """tau, temperature of the contrastive loss."""
    start: Natural = 20
    """Rounds before the alignment starts."""


class FedFM(ClusteredStrategy):
    """FedAvg of models and anchors."""

    Settings = FedFMSettings
    State = AnchorState

    def initial_state(self) -> Any:
        """Return the initial state; raise `ConfigError` without a linear classifier."""
        self.split = self.run.network.split
        return replace(super().initial_state(), anchors=no_anchors(self.split))

    def read_result(self, phase: str, result: Result) -> Result:
        """Read the label counts of a training result."""
        if phase != "train":
            return result
        counts = parse_counts(result.metrics.get("classes"), self.split.classes)
        return replace(result, report=counts)

    def plan_train(self, server_round: int) -> Plan:
        """Send the model and the anchors to the participants."""
        arrays = [self.state.models[0], self.state.anchors.points.ravel()]
        config = presence_config(self.state.anchors)
        return self.run.participants.send(server_round, arrays, **config)

    def absorb_train(self, server_round: int, results: Results) -> None:
        """Average the models, and the anchors by the samples of each class."""
        super().absorb_train(server_round, results)
        points = [result.arrays[1] for result in results]
        counts = np.stack([result.report for result in results])
        # Anchors of all: means of the clients', by the samples of each class.
        self.state.average(points, counts, self.settings.weight_cap)
