"""What FlexCFL, IFCA and FeSEM share: m clusters, of which clients choose their own.

Newcomers choose when they join; with `migration`, which is FlexCFL's, a client chooses
again when its label counts have shifted since the round in which the server took its
last choice: one whose report was lost is made again. The methods differ in what a
client compares itself with, and in when it chooses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from cfl_flower.clustering.label_shift import ShiftTest
from cfl_flower.communication.results import Results
from cfl_flower.engine.method import (
    ClusteredState,
    ClusteredStrategy,
    StrategySettings,
    no_clusters,
    read_number,
)
from cfl_flower.settings import Count, require, settings
from cfl_flower.types import IntArray, Plan, Result, Task
from clients.families.choosing import ChoiceRequest, MigrationRequest
from strategies.families.downloads import FetchedModels


@settings("strategy")
class ChoosingSettings(StrategySettings):
    """The settings of all methods whose clients choose."""

    clusters: Count = 5
    """m, the number of clusters; follows the top-level `clusters`."""
    migration: bool = False
    """Clients choose again when their label counts have shifted."""
    shift: ShiftTest = field(default_factory=ShiftTest)
    """What a shift is."""

    def check_run(self, clients: int) -> None:
        """Require as many clients as clusters."""
        super().check_run(clients)
        allowed = f"at most the {clients} clients"
        require(self.clusters <= clients, "clusters", self.clusters, allowed)

    def check_privacy(self) -> None:
        """Require that nobody chooses by its data and says so."""
        allowed = "false with privacy=, which covers no choices"
        require(not self.migration, "strategy.migration", self.migration, allowed)


@dataclass
class ChoosingState(ClusteredState):
    """The state of all methods whose clients choose."""

    chosen: IntArray = field(default_factory=no_clusters)
    """The round in which each client's choice was taken, shape (n,)."""


class ChoosingStrategy(ClusteredStrategy):
    """Clients choose among m clusters; each is averaged by itself."""

    Settings = ChoosingSettings
    State: ClassVar[type[ChoosingState]] = ChoosingState

    def initial_state(self) -> Any:
        """Return m models with seeds of their own, and no client."""
        draw = self.run.rng("cluster-models", 0)
        seeds = draw.integers(2**31, size=self.settings.clusters).tolist()
        models = [self.run.initial_model(seed) for seed in seeds]
        return self.State([], no_clusters(), models)

    @property
    def candidates(self) -> FetchedModels:
        """What clients compare themselves with: the clusters' models."""
        return FetchedModels(self.state.models)

    def read_result(self, phase: str, result: Result) -> Result:
        """Read the choice of a cluster, if there is one."""
        return self.read_choice(result) if "cluster" in result.metrics else result

    def read_choice(self, result: Result) -> Result:
        """Return a result whose report is the cluster that the client chose."""
        clusters = range(self.settings.clusters)
        return replace(result, report=read_number(result, "cluster", clusters))

    # Newcomers -----------------------------------------------------------------------

    def welcome(self, server_round: int, newcomers: list[Result]) -> None:
        """Let newcomers choose; those that fail to are asked again next round."""
        models = self.candidates.models
        everything = tuple(range(len(models)))
        tasks = [Task(result.client, everything) for result in newcomers]
        question = {**self.candidates.config, **ChoiceRequest(choose=True).to_config()}
        answers = self.run.ask(server_round, Plan(tasks, models, question))
        answers = self.run.read("query", answers, self.read_choice)
        self.admit(server_round, answers, [answer.report for answer in answers])

    def admit(
        self, server_round: int, results: list[Result], clusters: Sequence[int]
    ) -> None:
        """Take clients into the state."""
        state = self.state
        self.state.join(results, np.array(clusters, np.int64))
        state.chosen = np.append(state.chosen, np.full(len(results), server_round - 1))

    # Migration -----------------------------------------------------------------------

    def plan_evaluate(self, server_round: int, test: bool) -> Plan:
        """Test; with migration, clients also check whether their data shifted."""
        if not self.settings.migration:
            return super().plan_evaluate(server_round, test)
        state = self.state
        candidates = self.candidates
        models = state.models
        if candidates.models is not models:
            models = models + candidates.models
        places = tuple(range(len(models) - len(candidates.models), len(models)))
        tasks = []
        for row, receives in enumerate(candidates.receivers(state)):
            received: tuple[int, ...] = (int(state.clusters[row]),) if test else ()
            received += places if receives else ()
            request = MigrationRequest(int(state.chosen[row]))
            tasks.append(Task(state.clients[row], received, request.to_config()))
        return Plan(tasks, models, dict(candidates.config))

    def absorb_evaluate(self, server_round: int, results: Results) -> None:
        """Move the clients that chose again."""
        if not self.settings.migration:
            return
        state = self.state
        record = self.run.record
        reports = [result for result in results if result.report is not None]
        rows = self.state.rows(result.client for result in reports)
        clusters = np.array([result.report for result in reports], np.int64)
        record.drifted = len(reports)
        record.moved = int(np.count_nonzero(state.clusters[rows] != clusters))
        state.clusters[rows] = clusters
        state.chosen[rows] = server_round
        tested = self.state.rows(result.client for result in results)
        record.bytes_down += self.candidates.account(state, tested, results)
