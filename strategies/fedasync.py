"""FedAsync: every upload moves the one global model, the less the staler it is.

Xie, Koyejo and Gupta, "Asynchronous federated optimization" (arXiv 1903.03934, 2019).
A client trains near the model that it received, of epoch tau -> uploads w_new -> the
server takes w <- (1 - alpha_t) w + alpha_t w_new with alpha_t = alpha s(t - tau), where
s(x) = (1 + x)^-a -> and answers with w.

Server keeps: the global model. Leaves the device: the trained model and the time stamp
of the one that it started from (d floats, 8 bytes).
"""

from __future__ import annotations

from dataclasses import field, replace
from functools import partial
from typing import Annotated

from pydantic import Field

from cfl_flower.engine.asynchronous import AsynchronousSettings, AsynchronousStrategy
from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.settings import NonNegative, settings
from cfl_flower.types import Json, Plan, Result, Vector


class CommonModelStrategy(AsynchronousStrategy):
    """One model, which is what counts: it is tested, whatever clients hold."""

    def plan_evaluate(self, server_round: int, test: bool) -> Plan:
        """Let every simulated client test the newest model."""
        plan = super().plan_evaluate(server_round, test)
        tasks = [replace(task, models=(0,)) for task in plan.tasks]
        return replace(plan, tasks=tasks, models=self.state.models[: len(tasks)])


@settings("strategy")
class FedAsyncSettings(AsynchronousSettings):
    """FedAsync's settings, by the paper's symbols."""

    local: LocalTraining = field(default_factory=partial(LocalTraining, mu=0.005))
    alpha: Annotated[float, Field(gt=0, le=1)] = 0.6
    """Weight of an upload without staleness."""
    a: NonNegative = 0.5
    """Exponent by which stale uploads lose weight; 0: they lose none."""


def weight_of(staleness: int, alpha: float, a: float) -> float:
    """Return alpha_t = alpha (1 + staleness)^-a (section 5, the polynomial form).

    Examples
    --------
    >>> weight_of(0, 0.6, 0.5), weight_of(3, 0.6, 0.5)
    (0.6, 0.3)
    """
    # Section 5: alpha s(t - tau), with s(x) = (1 + x)^-a.
    return float(alpha * (1 + staleness) ** -a)


class FedAsync(CommonModelStrategy):
    """One model, which each upload moves at once."""

    Settings = FedAsyncSettings

    def reply(self, row: int, result: Result) -> list[Vector]:
        """Move the model towards the upload; return it."""
        state = self.state
        share = self.share(result)
        # w <- (1 - alpha_t) w + alpha_t w_new.
        moved = (1 - share) * state.models[0] + share * result.arrays[0]
        state.models[0] = moved.astype(result.arrays[0].dtype)
        return [state.models[0]]

    def share(self, result: Result) -> float:
        """Return alpha_t of an upload, whose epoch is the state's."""
        # The paper's t counts the models before this one: no upload between is 0.
        staleness = self.state.epoch - 1 - int(result.metrics["stamp"])
        return weight_of(staleness, self.settings.alpha, self.settings.a)

    def describe_upload(self, row: int, result: Result) -> dict[str, Json]:
        """Return how stale an upload was, in other uploads."""
        return {"staleness": self.state.epoch - 1 - int(result.metrics["stamp"])}
