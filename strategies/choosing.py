"""A fixed number of clusters, of which each client chooses its own.

What FlexCFL, IFCA and FeSEM have in common: m clusters, a client that chooses one when
it joins, and (a flag) again when its data shifted. They differ in what a client
compares itself with, and in when it chooses.

The server notes for each client when it last took its choice. A client compares its
data with those it had then, so a choice that was lost on the way is made again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from cfl_flower.clustering.label_shift import ShiftTest
from cfl_flower.communication.records import payload_bytes
from cfl_flower.communication.results import Results
from cfl_flower.errors import InvalidResultError
from cfl_flower.models import initial_vector
from cfl_flower.seeding import generator
from cfl_flower.settings import require
from cfl_flower.state import ClusteredState
from cfl_flower.types import BoolArray, IntArray, Plan, Result, Scalar, Task, Vector
from strategies.base import ClusteredStrategy, StrategySettings, no_clusters


@dataclass(frozen=True)
class ChoosingSettings(StrategySettings):
    """The settings of all methods whose clients choose.

    Attributes
    ----------
    clusters : int
        m.
    migration : bool
        Clients choose again when their data shifted.
    shift : ShiftTest
        What a shift is.
    """

    clusters: int = 5
    migration: bool = False
    shift: ShiftTest = field(default_factory=ShiftTest)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.clusters >= 1, "clusters", self.clusters, "at least 1")

    def check_run(self, clients: int) -> None:
        """Require as many clients as clusters."""
        super().check_run(clients)
        allowed = f"at most the {clients} clients"
        ok = self.clusters <= clients
        require(ok, "clusters", self.clusters, allowed)


@dataclass
class ChoosingState(ClusteredState):
    """The state of all methods whose clients choose.

    Attributes
    ----------
    chosen : int array of shape (n,)
        The round in which each client's choice was taken.
    """

    chosen: IntArray


class ChoosingStrategy(ClusteredStrategy):
    """Clients choose among m clusters; each is averaged by itself."""

    Settings = ChoosingSettings
    State: ClassVar[type[ChoosingState]] = ChoosingState

    def initial_state(self) -> Any:
        """Return the state before any client is known."""
        return ChoosingState([], no_clusters(), self.initial_models(), no_clusters())

    def initial_models(self) -> list[Vector]:
        """Return m models with seeds of their own."""
        dataset, model = self.config.dataset, self.config.model
        draw = generator(self.config.seed, "cluster-models")
        seeds = draw.integers(2**31, size=self.settings.clusters).tolist()
        shape, classes = dataset.shape, dataset.classes
        return [initial_vector(model, shape, classes, seed) for seed in seeds]

    def read_result(self, phase: str, result: Result) -> Result:
        """Read the choice of a cluster, if there is one."""
        return self.read_choice(result) if "cluster" in result.metrics else result

    def read_choice(self, result: Result) -> Result:
        """Return a result whose report is the cluster that the client chose.

        Raises
        ------
        InvalidResultError
            If it is none.
        """
        cluster, count = result.metrics.get("cluster"), self.settings.clusters
        ok = isinstance(cluster, int) and not isinstance(cluster, bool)
        if not ok or not 0 <= int(cluster) < count:  # type: ignore[arg-type]
            detail = f"cluster={cluster!r}, not one of 0 to {count - 1}"
            raise InvalidResultError("representation", detail)
        return replace(result, report=int(cluster))  # type: ignore[arg-type]

    def welcome(self, round: int, newcomers: list[Result]) -> None:
        """Let newcomers choose; who fails to is asked again in the next round."""
        answers = self.ask_choice(round, newcomers)
        self.admit(round, answers, [answer.report for answer in answers])

    def ask_choice(self, round: int, newcomers: list[Result]) -> list[Result]:
        """Return the valid answers of newcomers to the question of their cluster."""
        models = self.candidate_models()
        everything = tuple(range(len(models)))
        tasks = [Task(result.client, everything) for result in newcomers]
        results = self.ask(
            round, Plan(tasks, models, {"choose": True, **self.choice_config()})
        )
        return self.screen("query", results, self.read_choice)

    def candidate_models(self) -> list[Vector]:
        """Return what clients compare themselves with, one vector for each cluster."""
        models: list[Vector] = self.state.models
        return models

    def choice_config(self) -> dict[str, Scalar]:
        """Return what a client needs beside, to choose."""
        return {}

    def needs_models(self) -> BoolArray:
        """Return which clients receive the choices with their test, shape (n,)."""
        return np.ones(len(self.state.clients), bool)

    def admit(self, round: int, results: list[Result], clusters: Sequence[int]) -> None:
        """Take clients into the state."""
        state = self.state
        self.join(results, np.array(clusters, np.int64))
        state.chosen = np.append(state.chosen, np.full(len(results), round - 1))

    def plan_evaluate(self, round: int, test: bool) -> Plan:
        """Test, and let clients look whether their data shifted."""
        if not self.settings.migration:
            return super().plan_evaluate(round, test)
        state, choices = self.state, self.candidate_models()
        models = state.models if choices is state.models else state.models + choices
        first = len(models) - len(choices)
        places = tuple(range(first, len(models)))
        rows = zip(state.clusters, self.needs_models(), state.chosen, strict=True)
        tasks = [
            Task(
                client,
                ((int(cluster),) if test else ()) + (places if offered else ()),
                {"chosen": int(chosen)},
            )
            for client, (cluster, offered, chosen) in zip(
                state.clients, rows, strict=True
            )
        ]
        return Plan(tasks, models, self.choice_config())

    def absorb_evaluate(self, round: int, results: Results) -> None:
        """Move the clients that chose again."""
        if not self.settings.migration:
            return
        state, record = self.state, self.record
        reports = [result for result in results if result.report is not None]
        rows = self.rows(result.client for result in reports)
        clusters = np.array([result.report for result in reports], np.int64)
        record.drifted = len(reports)
        record.moved = int(np.count_nonzero(state.clusters[rows] != clusters))
        state.clusters[rows], state.chosen[rows] = clusters, round
        self.count_download(results)

    def count_download(self, results: list[Result]) -> None:
        """Count the choices that clients fetched: a test itself needs none."""
        fetched = sum(result.report is not None for result in results)
        self.record.bytes_down += fetched * payload_bytes(self.candidate_models(), {})
