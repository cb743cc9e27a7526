"""SCAFFOLD: control variates against client drift.

Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning"
(ICML 2020; Algorithm 1, option II). A participant receives the model x and the server's
control c; it steps along g - c_i + c and sends its model y and the change of its own
control, c_i+ = c_i - c + (x - y) / (K eta). Then x <- x + eta_g mean(y - x) and
c <- c + sum(c_i+ - c_i) / N.

Server keeps: the model and c. Leaves the device: the model (d floats) and the change of
its control (p floats).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cfl_flower.communication.results import Results
from cfl_flower.engine.method import ClusteredStrategy, Disclosure, Supports
from cfl_flower.settings import Positive, require, settings
from cfl_flower.state import ClusteredState, StrategySettings, Weighting, no_clusters
from cfl_flower.types import Plan, Vector


@settings("strategy")
class ScaffoldSettings(StrategySettings):
    """SCAFFOLD's settings."""

    client: str = "clients.scaffold.ScaffoldClient"
    weighting: Weighting = "plain"
    global_rate: Positive = 1.0
    """eta_g, the server's learning rate."""

    def __post_init__(self) -> None:
        super().__post_init__()
        rate = self.local.learning_rate
        momentum = self.local.momentum
        why = "controls are mean gradients of plain SGD"
        self.local.require_sgd(why)
        require(momentum == 0, "strategy.local.momentum", momentum, f"0: {why}")
        require(rate > 0, "strategy.local.learning_rate", rate, "a number above 0")

    def check_secure_sums(self) -> None:
        """Require that models are weighted as the changes of controls are: alike."""
        allowed = "plain with privacy.secure_sums, as controls have no weights"
        ok = self.weighting == "plain"
        require(ok, "strategy.weighting", self.weighting, allowed)


@dataclass
class ScaffoldState(ClusteredState):
    """SCAFFOLD's state."""

    control: Vector
    """c, the server's control, shape (p,)."""


class Scaffold(ClusteredStrategy):
    """Algorithm 1, the server's part."""

    Settings = ScaffoldSettings
    State = ScaffoldState
    discloses = Disclosure(models=2, uncovered="the change of their control")
    supports = Supports(server_optimizer=False)

    def initial_state(self) -> Any:
        """Return the state before any client is known: no control yet."""
        model = self.run.initial_model()
        control = np.zeros(self.run.weights, np.float32)
        return ScaffoldState([], no_clusters(), [model], control)

    def plan_train(self, server_round: int) -> Plan:
        """Send the model and the control to the participants."""
        arrays = [self.state.models[0], self.state.control]
        return self.run.participants.send(server_round, arrays)

    def absorb_train(self, server_round: int, results: Results) -> None:
        """Step along the mean update, and add the changes of the controls."""
        state = self.state
        rate = self.settings.global_rate
        model = state.models[0]
        update = self.run.average(results) - model
        rates = np.full(len(model), rate, np.float32)
        # Beyond the mean of running variances there are negative ones.
        rates[self.run.weights :] = min(rate, 1.0)
        # x <- x + eta_g mean(y - x).
        state.models = [model + rates * update]
        total = np.sum([result.arrays[1] for result in results], 0, np.float64)
        # c <- c + sum(c_i+ - c_i) / N.
        change = total / len(state.clients)
        state.control = (state.control + change).astype(np.float32)
