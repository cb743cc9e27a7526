"""Adaptive-FedAvg: the clients' learning rate follows the variance of the model.

Canonaco et al., "Adaptive Federated Learning in Presence of Concept Drift" (IJCNN
2021). After FedAvg's mean w_t the server keeps moving averages of the model, of its
squared distance to that average, and of the ratio of the latter between rounds, each
corrected for its start at 0. The learning rate of round t + 1 is
min(eta_0, eta_0 r_t / t): it decays with 1/t, and rises when the variance does.

Server keeps: the model, its average (d floats), three numbers. Leaves the device: the
model.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
from pydantic import Field

from cfl_flower.communication.results import Results
from cfl_flower.engine.method import ClusteredStrategy, Disclosure
from cfl_flower.settings import require, settings
from cfl_flower.state import ClusteredState, StrategySettings
from cfl_flower.types import Plan, Vector
from clients.adapfedavg import RATE


@settings("strategy")
class AdapFedAvgSettings(StrategySettings):
    """Adaptive-FedAvg's settings."""

    client: str = "clients.adapfedavg.AdapFedAvgClient"
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.7
    """Memory of the moving average of the model."""
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.3
    """Memory of the moving average of the variance."""
    beta3: Annotated[float, Field(ge=0, lt=1)] = 0.7
    """Memory of the moving average of the ratio."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, off in (("schedule", "null"), ("warmup", "0")):
            value = getattr(self.local, name)
            allowed = f"{off}: the server adapts the rate"
            require(not value, f"strategy.local.{name}", value, allowed)


@dataclass
class AdapFedAvgState(ClusteredState):
    """Adaptive-FedAvg's state: moving averages of the p weights."""

    steps: int = 0
    """t, the rounds with results."""
    mean: Vector = field(default_factory=lambda: np.zeros(1, np.float32))
    """The moving average of the weights, shape (p,); a single 0 before the first."""
    variance: float = 0.0
    ratio: float = 0.0
    share: float = 1.0
    """The learning rate of the next round, in parts of eta_0."""


def adapt_rate(
    state: AdapFedAvgState, weights: Vector, settings: AdapFedAvgSettings
) -> None:
    """Update the averages by a round's weights; the rate's share is min(1, r_t / t)."""
    before = state.steps
    t = state.steps + 1
    past = state.mean / (1 - settings.beta1**before) if before else state.mean
    # The squared distance of w_t to the average of the rounds before.
    spread = float(np.mean((weights - past) ** 2))
    old = state.variance / (1 - settings.beta2**before) if before else 0.0
    # The average of the model: beta1 m + (1 - beta1) w_t.
    state.mean = settings.beta1 * state.mean + (1 - settings.beta1) * weights
    # The average of the squared distance: beta2 v + (1 - beta2) spread.
    state.variance = settings.beta2 * state.variance + (1 - settings.beta2) * spread
    # The ratio of the two rounds' corrected variances; 1 in the first round.
    growth = state.variance / (1 - settings.beta2**t) / old if old > 0 else 1.0
    # r_t: beta3 r + (1 - beta3) growth.
    state.ratio = settings.beta3 * state.ratio + (1 - settings.beta3) * growth
    # min(eta_0, eta_0 r_t / t), in parts of eta_0.
    state.share = min(1.0, state.ratio / (1 - settings.beta3**t) / t)
    state.steps = t


class AdapFedAvg(ClusteredStrategy):
    """FedAvg with a learning rate that the server adapts."""

    Settings = AdapFedAvgSettings
    State = AdapFedAvgState
    discloses = Disclosure()

    def plan_train(self, server_round: int) -> Plan:
        """Send the learning rate with the model."""
        plan = super().plan_train(server_round)
        rate = self.settings.local.learning_rate * self.state.share
        self.run.record.measures["learning_rate"] = rate
        return replace(plan, config=plan.config | {RATE: rate})

    def absorb_train(self, server_round: int, results: Results) -> None:
        """Average, then adapt the learning rate to the model's variance."""
        super().absorb_train(server_round, results)
        weights = self.state.models[0][: self.run.weights]
        adapt_rate(self.state, weights, self.settings)
