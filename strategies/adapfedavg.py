"""Adaptive-FedAvg: the clients' learning rate follows the variance of the model.

Canonaco et al., "Adaptive Federated Learning in Presence of Concept Drift" (IJCNN
2021). Each round, after FedAvg's mean w_t: the server keeps moving averages of the
model, of its squared distance to that average, and of the ratio of the latter between
rounds, each corrected for its start at 0. The learning rate of round t + 1 is
min(eta_0, eta_0 r_t / t): it decays with 1/t, and rises when the variance does.

Server keeps: the model, its moving average (d floats), three numbers. Leaves the
device: the model.

Readings and deviations: docs/methods/adapfedavg.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from cfl_flower.communication.results import Results
from cfl_flower.settings import settings
from cfl_flower.state import ClusteredState
from cfl_flower.types import FloatArray, Plan, Vector
from strategies.base import ClusteredStrategy, StrategySettings


@settings("strategy")
class AdapFedAvgSettings(StrategySettings):
    """Adaptive-FedAvg's settings."""

    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.7
    """Memory of the moving average of the model."""
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.3
    """Memory of the moving average of the variance."""
    beta3: Annotated[float, Field(ge=0, lt=1)] = 0.7
    """Memory of the moving average of the ratio."""


@dataclass
class Averages:
    """The server's moving averages."""

    steps: int
    """t, the rounds taken in."""
    model: FloatArray
    """Shape (d,)."""
    variance: float
    ratio: float


@dataclass
class AdapFedAvgState(ClusteredState):
    """Adaptive-FedAvg's state; its averages (`Averages`) are of the weights alone."""

    steps: int
    mean: Vector
    variance: float
    ratio: float
    share: float
    """The learning rate of the next round, in parts of eta_0."""


def follow(
    before: Averages, model: Vector, beta1: float, beta2: float, beta3: float
) -> tuple[Averages, float]:
    """Take in a round's model and return the next learning rate's share of eta_0.

    Parameters
    ----------
    before : Averages
    model : Vector, shape (d,)
    beta1, beta2, beta3 : float

    Returns
    -------
    Averages
    float
        min(1, r_t / t).
    """
    t = before.steps + 1
    past = before.model / (1 - beta1**before.steps) if before.steps else before.model
    mean = beta1 * before.model + (1 - beta1) * model
    spread = float(np.mean((model - past) ** 2))
    variance = beta2 * before.variance + (1 - beta2) * spread
    old = before.variance / (1 - beta2**before.steps) if before.steps else 0.0
    growth = variance / (1 - beta2**t) / old if old > 0 else 1.0
    ratio = beta3 * before.ratio + (1 - beta3) * growth
    share = min(1.0, ratio / (1 - beta3**t) / t)
    return Averages(t, mean, variance, ratio), share


class AdapFedAvg(ClusteredStrategy):
    """FedAvg with a learning rate that the server adapts."""

    Settings = AdapFedAvgSettings
    State = AdapFedAvgState

    def initial_state(self) -> Any:
        """Return the state before any client is known."""
        state = super().initial_state()
        zero = np.zeros_like(state.models[0][: self.weights])
        return AdapFedAvgState(
            state.clients, state.clusters, state.models, 0, zero, 0.0, 0.0, 1.0
        )

    def plan_train(self, round: int) -> Plan:
        """Send the learning rate with the model."""
        plan = super().plan_train(round)
        rate = self.settings.local.learning_rate * self.state.share
        self.record.measures["learning_rate"] = rate
        plan.config["learning_rate"] = rate
        return plan

    def absorb_train(self, round: int, results: Results) -> None:
        """Average, then adapt the learning rate to the model's variance."""
        super().absorb_train(round, results)
        if not results:
            return
        state, own = self.state, self.settings
        before = Averages(state.steps, state.mean, state.variance, state.ratio)
        betas = own.beta1, own.beta2, own.beta3
        weights = state.models[0][: self.weights]
        after, state.share = follow(before, weights, *betas)
        state.steps, state.variance, state.ratio = (
            after.steps,
            after.variance,
            after.ratio,
        )
        state.mean = after.model.astype(np.float32)
