"""Flash: a server optimiser that notices drift, and clients that stop early.

Panchal et al., "Flash: Concept Drift Adaptation in Federated Learning" (ICML 2023;
Algorithm 1). Clients stop when an epoch brings little. The server takes the mean update
as a gradient for an adaptive optimiser whose third moment d follows the difference of
the squared update and its average, which is large after a drift and makes steps longer.

Server keeps: the model and m, v, d (d floats each). Leaves the device: the model.

Deviations and readings, as in FedCCFA's comparison where not said otherwise:

* A client validates on a tenth of its own training samples, which it does not train on,
  and compares epochs of one round. There it validates on its local test set, and goes
  on from the last round's value. Momentum starts anew in each epoch.
* The denominator sqrt(v) - d + tau can become 0 or negative, as published: FedCCFA's
  Table 2 has a run that ends at 10%. `guard=true` keeps it at tau or above.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from cfl_flower.communication.results import Results
from cfl_flower.settings import require
from cfl_flower.state import ClusteredState
from cfl_flower.types import FloatArray, Vector
from strategies.base import ClusteredStrategy, StrategySettings, Supports


@dataclass(frozen=True)
class FlashSettings(StrategySettings):
    """Flash's settings.

    Attributes
    ----------
    server_rate : float
        eta_g.
    tau : float
        Of the denominator; v starts at its square.
    beta1, beta2 : float
        Memory of the first and the second moment.
    stop : float
        gamma: a client stops when an epoch lowers its validation loss by less than
        stop / (epoch + 1).
    validation : float
        Share of a client's training samples that it validates on.
    guard : bool
        Keep the denominator at tau or above.
    """

    server_rate: float = 0.01
    tau: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.99
    stop: float = 0.004
    validation: float = 0.1
    guard: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("server_rate", "tau"):
            value = getattr(self, name)
            ok = 0 < value < math.inf
            require(ok, f"strategy.{name}", value, "a number above 0")
        for name in ("beta1", "beta2", "validation"):
            value, allowed = getattr(self, name), "a number from 0 to below 1"
            require(0 <= value < 1, f"strategy.{name}", value, allowed)
        require(self.stop >= 0, "strategy.stop", self.stop, "at least 0")


@dataclass
class FlashState(ClusteredState):
    """Flash's state.

    Attributes
    ----------
    first, second, third : Vector, shape (p,)
        m, v and d; of the weights, as running statistics are averaged.
    """

    first: Vector
    second: Vector
    third: Vector


def flash_step(
    model: FloatArray,
    update: FloatArray,
    moments: tuple[FloatArray, FloatArray, FloatArray],
    settings: FlashSettings,
) -> tuple[FloatArray, tuple[FloatArray, FloatArray, FloatArray]]:
    """Return the next model and the next moments m, v, d: Algorithm 1.

    m <- b1 m + (1 - b1) D, v' <- b2 v + (1 - b2) D^2,
    b3 = |v| / (|D^2 - v'| + |v|), d <- b3 d + (1 - b3) (D^2 - v'),
    w <- w + eta_g m / (sqrt(v') - d + tau).

    Parameters
    ----------
    model, update : arrays of shape (d,)
        w and D, the mean update.
    moments : (m, v, d)
    settings : FlashSettings
    """
    first, second, third = moments
    square = update**2
    first = settings.beta1 * first + (1 - settings.beta1) * update
    new = settings.beta2 * second + (1 - settings.beta2) * square
    share = np.abs(second) / (np.abs(square - new) + np.abs(second))
    third = share * third + (1 - share) * (square - new)
    below = np.sqrt(new) - third + settings.tau
    if settings.guard:
        below = np.maximum(below, settings.tau)
    with np.errstate(divide="ignore", invalid="ignore"):
        return model + settings.server_rate * first / below, (first, new, third)


class Flash(ClusteredStrategy):
    """Algorithm 1, the server's part."""

    Settings = FlashSettings
    State = FlashState

    supports = Supports(server_optimizer=False)

    def initial_state(self) -> Any:
        """Return the state before any client is known: v at tau squared."""
        state = super().initial_state()
        zero = np.zeros_like(state.models[0][: self.weights])
        second = zero + np.float32(self.settings.tau**2)
        return FlashState(
            state.clients, state.clusters, state.models, zero, second, zero.copy()
        )

    def absorb_train(self, round: int, results: Results) -> None:
        """Step by the mean update."""
        if not results:
            return
        state, count, mean = self.state, self.weights, self.average(results)
        model = state.models[0][:count].astype(float)
        update = mean[:count] - model
        moments = tuple(
            m.astype(float) for m in (state.first, state.second, state.third)
        )
        model, moments = flash_step(model, update, moments, self.settings)
        state.models = [np.concatenate([model.astype(np.float32), mean[count:]])]
        state.first, state.second, state.third = (m.astype(np.float32) for m in moments)
