"""A method: the steps that a paper decides, and what its file begins with.

A method speaks of clients, clusters and models only: who joins which cluster, who
trains what, what the results change. It is a Flower strategy, and hands Flower's verbs
to its engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from cfl_flower.communication.fleet import Fleet
from cfl_flower.communication.results import Results
from cfl_flower.data.worlds.timeline import Timeline

# What the file of a method imports from here, beside the class itself.
from cfl_flower.engine.declarations import UNAVERAGED as UNAVERAGED
from cfl_flower.engine.declarations import Description as Description
from cfl_flower.engine.declarations import Disclosure as Disclosure
from cfl_flower.engine.declarations import Published as Published
from cfl_flower.engine.declarations import Supports as Supports
from cfl_flower.engine.declarations import with_more as with_more
from cfl_flower.engine.rounds import Rounds
from cfl_flower.engine.services import RunServices
from cfl_flower.errors import InvalidResultError
from cfl_flower.run_config import RunConfig
from cfl_flower.runs.callbacks import Callback
from cfl_flower.seeding import own_draws, torch_seed
from cfl_flower.state import ClusteredState as ClusteredState
from cfl_flower.state import StrategySettings as StrategySettings
from cfl_flower.state import no_clusters as no_clusters
from cfl_flower.types import ClientId, IntArray, Plan, Result, Task, Vector


class ClusteredStrategy(Strategy):
    """Per-cluster FedAvg, open at every step where methods differ.

    The engine calls these ten steps, and knows nothing else of a method.
    """

    Settings: ClassVar[type[StrategySettings]] = StrategySettings
    State: ClassVar[type[ClusteredState]] = ClusteredState
    published: ClassVar[Published] = Published()
    supports: ClassVar[Supports] = Supports()
    discloses: ClassVar[Disclosure | None] = None
    """Data that leave the clients; None if undeclared, which `privacy=` refuses."""
    run: RunServices
    """What it may use of its run."""
    settings: Any
    state: Any

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
        with own_draws(torch_seed(config.seed, "method/initial_state")):
            self.state = self.initial_state()

    # The steps of a method -----------------------------------------------------------

    def initial_state(self) -> Any:
        """Return the state before any client is known: one initial model."""
        return self.State([], no_clusters(), [self.run.initial_model()])

    def hello(self, clients: Sequence[ClientId]) -> Plan:
        """Return what clients are asked before they are known: their sizes."""
        return Plan([Task(client) for client in clients])

    def welcome(self, server_round: int, newcomers: list[Result]) -> None:
        """Take newcomers into the state, all into cluster 0."""
        self.state.join(newcomers, np.zeros(len(newcomers), np.int64))

    def read_result(self, phase: str, result: Result) -> Result:
        """Return a result with its report parsed, if this method has one.

        Raises `InvalidResultError` if it must not enter the state.
        """
        return result

    def plan_train(self, server_round: int) -> Plan:
        """Sample participants; each trains its cluster's model."""
        return cluster_plan(self.state, self.run.participants.choose(server_round))

    def absorb_train(self, server_round: int, results: Results) -> None:
        """Average each cluster's results; a cluster without any keeps its model.

        There is at least one result.
        """
        rows = self.state.rows(result.client for result in results)
        self.run.average_clusters(self.state.clusters[rows], results)

    def plan_evaluate(self, server_round: int, test: bool) -> Plan:
        """Let every client test the model it is served."""
        state = self.state
        if not test:
            return Plan([])
        pairs = zip(state.clients, state.clusters.tolist(), strict=True)
        return Plan([Task(client, (k,)) for client, k in pairs], state.models)

    def unlabelled_choice(self) -> list[Vector]:
        """Return what a client without labels chooses a model among, and by."""
        return self.state.models if self.settings.unlabelled else []

    def absorb_evaluate(self, server_round: int, results: Results) -> None:
        """Take in what clients report about their data of the next round."""

    def describe(self) -> Description:
        """Return what is known of the clusters now."""
        return Description()

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


def cluster_plan(
    state: ClusteredState, rows: Iterable[int], clusters: IntArray | None = None
) -> Plan:
    """Return a plan in which some clients train the model of their cluster.

    ``clusters`` are others than the state's, shape (n,).
    """
    trained = state.clusters if clusters is None else clusters
    tasks = [Task(state.clients[row], (int(trained[row]),)) for row in rows]
    return Plan(tasks, state.models, {}, reply=(len(state.models[0]),))


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
