"""Flash: a server optimiser that reacts to drift, and clients that stop early.

Panchal et al., "Flash: Concept Drift Adaptation in Federated Learning" (ICML 2023;
Algorithm 1). Clients stop when an epoch brings little. The server takes the mean update
as a gradient for an adaptive optimiser whose third moment d follows the difference of
the squared update and its average, which is large after a drift and makes steps longer.

Server keeps: the model and m, v, d (d floats each). Leaves the device: the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from cfl_flower.communication.results import Results
from cfl_flower.engine.method import ClusteredStrategy, Disclosure, Supports
from cfl_flower.settings import Magnitude, NonNegative, Positive, settings
from cfl_flower.state import ClusteredState, StrategySettings, no_clusters
from cfl_flower.types import FloatArray, Vector


@settings("strategy")
class FlashSettings(StrategySettings):
    """Flash's settings."""

    idle_unless = StrategySettings.idle_unless | {"stop": "validation"}

    client: str = "clients.flash.FlashClient"
    server_rate: Positive = 0.01
    """eta_g, the server's learning rate."""
    tau: Magnitude = 0.001
    """tau, added to the denominator; v starts at its square."""
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Memory of the first moment."""
    beta2: Annotated[float, Field(gt=0, lt=1)] = 0.99
    """Memory of the second moment."""
    stop: NonNegative = 0.004
    """gamma: a client stops when an epoch lowers its validation loss by less than stop
    / (epoch + 1)."""
    validation: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of a client's training samples that it validates on."""
    guard: bool = False
    """Keep the denominator at tau or above."""


@dataclass
class FlashState(ClusteredState):
    """Flash's state."""

    first: Vector
    second: Vector
    third: Vector
    """m, v and d of the p weights; running statistics are averaged."""


def flash_step(
    model: FloatArray,
    update: FloatArray,
    moments: list[FloatArray],
    settings: FlashSettings,
) -> tuple[FloatArray, list[FloatArray]]:
    """Return the next model and the next moments m, v, d: Algorithm 1.

    m <- b1 m + (1 - b1) D, v' <- b2 v + (1 - b2) D^2,
    b3 = |v| / (|D^2 - v'| + |v|), d <- b3 d + (1 - b3) (D^2 - v'),
    w <- w + eta_g m / (sqrt(v') - d + tau), with the mean update D, shape (d,).
    """
    first, second, third = moments
    square = update**2
    # m <- b1 m + (1 - b1) D.
    first = settings.beta1 * first + (1 - settings.beta1) * update
    # v' <- b2 v + (1 - b2) D^2.
    new = settings.beta2 * second + (1 - settings.beta2) * square
    # b3 = |v| / (|D^2 - v'| + |v|).
    share = np.abs(second) / (np.abs(square - new) + np.abs(second))
    # d <- b3 d + (1 - b3) (D^2 - v').
    third = share * third + (1 - share) * (square - new)
    below = np.sqrt(new) - third + settings.tau
    if settings.guard:
        below = np.maximum(below, settings.tau)
    with np.errstate(divide="ignore", invalid="ignore"):
        # w <- w + eta_g m / (sqrt(v') - d + tau).
        return model + settings.server_rate * first / below, [first, new, third]


class Flash(ClusteredStrategy):
    """Algorithm 1, the server's part."""

    Settings = FlashSettings
    State = FlashState

    supports = Supports(server_optimizer=False)
    discloses = Disclosure()

    def initial_state(self) -> Any:
        """Return the state before any client is known: v at tau squared."""
        zero = np.zeros(self.run.weights, np.float32)
        second = zero + np.float32(self.settings.tau**2)
        none = no_clusters()
        model = self.run.initial_model()
        return FlashState([], none, [model], zero, second, zero.copy())

    def absorb_train(self, server_round: int, results: Results) -> None:
        """Take a step of the server optimiser along the mean update."""
        state = self.state
        count = self.run.weights
        mean = self.run.average(results)
        model = state.models[0][:count].astype(float)
        update = mean[:count] - model
        moments = [m.astype(float) for m in (state.first, state.second, state.third)]
        model, moments = flash_step(model, update, moments, self.settings)
        state.models = [np.concatenate([model.astype(np.float32), mean[count:]])]
        state.first, state.second, state.third = (m.astype(np.float32) for m in moments)
