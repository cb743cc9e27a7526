"""A method as a Flower strategy, and what its file begins with.

A method speaks of clients, clusters and models only: who joins which cluster, who
trains what, what the results change. It is a Flower strategy, and hands Flower's verbs
to its engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from cfl_flower.communication.fleet import Fleet
from cfl_flower.data.worlds.timeline import Timeline
from cfl_flower.engine.declarations import (
    Description,
    Disclosure,
    Method,
    Published,
    Supports,
    cluster_plan,
)
from cfl_flower.engine.rounds import Rounds
from cfl_flower.engine.services import RunServices
from cfl_flower.errors import InvalidResultError
from cfl_flower.run_config import RunConfig
from cfl_flower.runs.callbacks import Callback
from cfl_flower.state import ClusteredState, StrategySettings, no_clusters
from cfl_flower.types import Plan, Result

__all__ = [
    "ClusteredState",
    "ClusteredStrategy",
    "Description",
    "Disclosure",
    "Published",
    "StrategySettings",
    "Supports",
    "cluster_plan",
    "no_clusters",
    "read_number",
    "with_all_models",
]
"""What the file of a method begins with."""


class ClusteredStrategy(Method, Strategy):
    """Per-cluster FedAvg, open at every step where methods differ."""

    run: RunServices

    def __init__(
        self,
        config: RunConfig,
        fleet: Fleet,
        timeline: Timeline | None = None,
        callbacks: Sequence[Callback] = (),
        *,
        engine: type[Rounds] = Rounds,
    ) -> None:
        self.engine = engine(self, config, fleet, timeline, callbacks)
        self.run = self.engine.services
        self.settings = config.strategy
        self.state = self.initial_state()

    # Flower's verbs, which the engine carries out -----------------------------------

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Return the messages of a round's training tasks."""
        return self.engine.configure_train(server_round)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Take in the training results; the models stay in the state."""
        return self.engine.aggregate_train(replies)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Return the messages of a round's tests."""
        return self.engine.configure_evaluate()

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Take in the tests and what clients report with them."""
        return self.engine.aggregate_evaluate(replies)

    def summary(self) -> None:
        """Print nothing: callbacks do."""


def with_all_models(plan: Plan) -> Plan:
    """Return a plan in which every client receives all models."""
    everything = tuple(range(len(plan.models)))
    tasks = [replace(task, models=everything) for task in plan.tasks]
    return replace(plan, tasks=tasks)


def read_number(result: Result, name: str, allowed: range) -> int:
    """Return a whole number that a client reports.

    Raises `InvalidResultError` if it is none of those allowed.
    """
    value = result.metrics.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value not in allowed:
        detail = f"{name}={value!r}, not one of {allowed[0]} to {allowed[-1]}"
        raise InvalidResultError("representation", detail)
    return value
