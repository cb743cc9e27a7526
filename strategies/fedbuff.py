"""FedBuff: uploads are gathered in a buffer, and K of them make a step of the model.

Nguyen et al., "Federated learning with buffered asynchronous aggregation" (AISTATS
2022). A client trains the model that it received -> its update Delta, weighted by
1 / sqrt(1 + tau) for the tau versions that the server has made since, goes into the
buffer -> with K in it the server takes w <- w + eta_g * mean of the buffer (Algorithm
1) -> and answers with the newest model.

Server keeps: the global model, the sum of the buffer, the version that each client
received. Leaves the device: the trained model and the time stamp of the one that it
started from (d floats, 8 bytes).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import sqrt

import numpy as np

from cfl_flower.engine.asynchronous import (
    AsynchronousSettings,
    AsynchronousState,
)
from cfl_flower.engine.method import no_clusters
from cfl_flower.settings import Count, Positive, settings
from cfl_flower.types import IntArray, Json, Result, Vector
from strategies.fedasync import CommonModelStrategy


@settings("strategy")
class FedBuffSettings(AsynchronousSettings):
    """FedBuff's settings, by the paper's symbols."""

    buffer: Count = 10
    """K, the uploads of a step."""
    server_rate: Positive = 1.0
    """eta_g, the server's step size."""


@dataclass
class FedBuffState(AsynchronousState):
    """The state; n clients are rows."""

    steps: int = 0
    """Number of server steps so far: the version of the model."""
    received: IntArray = field(default_factory=no_clusters)
    """The version that each client received last, shape (n,)."""
    gathered: Vector = field(default_factory=lambda: np.zeros(0, np.float32))
    """The sum of the weighted updates in the buffer, shape (d,)."""
    held: int = 0
    """Number of updates in the buffer."""

    def join(self, newcomers: Sequence[Result], clusters: IntArray) -> None:
        """Append newcomers, who receive the newest model."""
        super().join(newcomers, clusters)
        now = np.full(len(newcomers), self.steps)
        self.received = np.append(self.received, now)


class FedBuff(CommonModelStrategy):
    """One model, which K uploads move together."""

    Settings = FedBuffSettings
    State = FedBuffState

    def reply(self, row: int, result: Result) -> list[Vector]:
        """Add the upload to the buffer, make a step if it is full; return the model."""
        state = self.state
        count = self.run.weights
        sent = result.arrays[0]
        # 1 / sqrt(1 + tau).
        weight = 1 / sqrt(1 + state.steps - int(state.received[row]))
        update = np.float32(weight) * (sent - state.served[row])
        # Running statistics are averaged: sums of steps make variances negative.
        update[count:] = sent[count:] - state.models[0][count:]
        if not state.held:
            state.gathered = np.zeros_like(update)
        # Algorithm 1: the sum of the weighted updates.
        state.gathered = state.gathered + update
        state.held += 1
        if state.held == self.settings.buffer:
            # Algorithm 1: w <- w + eta_g / K times the sum.
            steps = np.ones(len(sent), np.float32) / state.held
            steps[:count] *= self.settings.server_rate
            state.models[0] = state.models[0] + steps * state.gathered
            state.steps += 1
            state.held = 0
        return [state.models[0]]

    def personal(self, row: int, sent: list[Vector]) -> Vector:
        """Return the model that a client receives, and note after which step."""
        self.state.received[row] = self.state.steps
        return sent[0]

    def describe_upload(self, row: int, result: Result) -> dict[str, Json]:
        """Return the steps of the model that a client is sent."""
        return {"steps": self.state.steps}
