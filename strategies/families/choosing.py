"""The strategy of FlexCFL, IFCA and FeSEM: m clusters, of which clients choose one.

Newcomers choose when they join. With `migration`, which is FlexCFL's, a client chooses
again when its label counts have shifted since the last choice that the server received;
a choice that was lost is repeated. The methods differ in what a client compares itself
with, and in when it chooses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np

from cfl_flower.communication.results import Results
from cfl_flower.engine.method import (
    ClusteredStrategy,
    cluster_plan,
    read_number,
    with_all_models,
)
from cfl_flower.settings import Count, NonNegative, require, settings
from cfl_flower.state import ClusteredState, StrategySettings, no_clusters
from cfl_flower.types import (
    BoolArray,
    ClientId,
    IntArray,
    Plan,
    Result,
    Scalar,
    Task,
    Vector,
)
from clients.families.choosing import CHOOSE, CHOSEN

CHOICE = "the number of the cluster that they chose"
"""The data that clients of these methods send beside models."""


@settings("strategy.shift")
class ShiftTest:
    """FlexCFL's test on label counts: eq. 9."""

    threshold: NonNegative = 0.2
    """Share of the samples whose change is a shift; 0.2 in eq. 9."""
    metric: Literal["labels", "reference"] = "labels"
    """Measure of the change. `labels`: (1/L) sum_l |c_l - c'_l|. `reference`: the
    authors' code, the Wasserstein distance of the counts taken as values, which sees
    sizes and the sorted profile only: other labels in the same numbers are no change to
    it."""

    def detects(self, current: IntArray, before: IntArray) -> bool:
        """Return whether label counts have changed by more than tau.

        tau = threshold * n / L, with the n samples of ``before`` (eq. 9). Both arrays
        have shape (L,).

        Examples
        --------
        >>> test, before = ShiftTest(), np.array([50, 50, 0, 0])
        >>> test.detects(np.array([40, 50, 10, 0]), before)
        False
        >>> test.detects(np.array([39, 50, 11, 0]), before)
        True
        """
        from scipy.stats import wasserstein_distance

        if self.metric == "reference":
            change = float(wasserstein_distance(current, before))
        else:
            change = float(np.abs(current - before).mean())
        # FlexCFL, eq. 9.
        return bool(change > self.threshold * before.sum() / len(before))


@settings("strategy")
class ChoosingSettings(StrategySettings):
    """The settings of all methods whose clients choose."""

    idle_unless = StrategySettings.idle_unless | {"shift": "migration"}

    clusters: Count = 5
    """m, the number of clusters; follows the top-level `clusters`."""
    migration: bool = False
    """Clients choose again when their label counts have shifted."""
    shift: ShiftTest = field(default_factory=ShiftTest)
    """Test that detects a shift of the label counts."""

    def check_run(self, clients: int) -> None:
        """Require at least as many clients as clusters."""
        super().check_run(clients)
        allowed = f"at most the {clients} clients"
        require(self.clusters <= clients, "clusters", self.clusters, allowed)

    def check_privacy(self) -> None:
        """Require that no client reports a choice that depends on its data."""
        allowed = "false with privacy=, which covers no choices"
        require(not self.migration, "strategy.migration", self.migration, allowed)


@dataclass
class ChoosingState(ClusteredState):
    """The state of all methods whose clients choose."""

    chosen: IntArray = field(default_factory=no_clusters)
    """The round in which each client's last choice arrived, shape (n,)."""


class ChoosingStrategy(ClusteredStrategy):
    """Clients choose among m clusters, whose models are averaged separately."""

    Settings = ChoosingSettings
    State: ClassVar[type[ChoosingState]] = ChoosingState

    def initial_state(self) -> Any:
        """Return m models with seeds of their own, and no client."""
        models = self.run.initial_models(self.settings.clusters)
        return self.State([], no_clusters(), models)

    @property
    def candidates(self) -> list[Vector]:
        """What clients compare themselves with, a vector for each cluster."""
        return self.state.models

    @property
    def candidates_config(self) -> dict[str, Scalar]:
        """Entries of the task config that go with the candidates."""
        return {}

    def read_result(self, phase: str, result: Result) -> Result:
        """Read the choice of a cluster, if there is one."""
        return self.read_choice(result) if "cluster" in result.metrics else result

    def read_choice(self, result: Result) -> Result:
        """Return a result whose report is the cluster that the client chose."""
        clusters = range(self.settings.clusters)
        return replace(result, report=read_number(result, "cluster", clusters))

    # Newcomers -----------------------------------------------------------------------

    def welcome(self, server_round: int, newcomers: list[Result]) -> None:
        """Let newcomers choose; those without a valid answer are asked next round."""
        answers = self.ask_choices(server_round, [each.client for each in newcomers])
        self.admit(server_round, answers, [answer.report for answer in answers])

    def ask_choices(
        self, server_round: int, clients: Sequence[ClientId]
    ) -> list[Result]:
        """Return the valid choices of some clients, before a round's training."""
        question = self.candidates_config | {CHOOSE: True}
        tasks = [Task(client) for client in clients]
        plan = with_all_models(Plan(tasks, self.candidates, question))
        answers = self.run.ask(server_round, plan)
        return self.run.read("query", answers, self.read_choice)

    def plan_after_choices(self, server_round: int) -> Plan:
        """Sample participants and let them choose; each trains what it chose.

        With secure sums who is in a sum must be known before anybody trains.
        """
        plan = super().plan_train(server_round)
        clients = [task.client for task in plan.tasks]
        rows = self.move(self.ask_choices(server_round, clients))
        return cluster_plan(self.state, rows.tolist())

    def move(self, results: Sequence[Result]) -> IntArray:
        """Move clients to the clusters that they chose; return their rows."""
        rows: IntArray = self.state.rows(result.client for result in results)
        chosen = np.array([result.report for result in results], np.int64)
        moved = np.count_nonzero(self.state.clusters[rows] != chosen)
        # A client may choose before its training, and again when its data shifted.
        self.run.record.moved = (self.run.record.moved or 0) + int(moved)
        self.state.clusters[rows] = chosen
        return rows

    def admit(
        self, server_round: int, results: list[Result], clusters: Sequence[int]
    ) -> None:
        """Add clients to the state, with the clusters that they chose."""
        state = self.state
        state.join(results, np.array(clusters, np.int64))
        state.chosen = np.append(state.chosen, np.full(len(results), server_round - 1))

    # Migration -----------------------------------------------------------------------

    def receivers(self) -> BoolArray:
        """Return which clients receive the candidates with their test, shape (n,).

        All of them, as models change from round to round: sending them with every test
        saves an exchange of messages.
        """
        return np.ones(len(self.state.clients), bool)

    def count_candidates(self, results: Results) -> int:
        """Return how many tested clients are charged for the candidates' bytes.

        Those that chose again, as a real client would have fetched them then.
        """
        return sum(result.report is not None for result in results)

    def plan_evaluate(self, server_round: int, test: bool) -> Plan:
        """Test; with migration, clients also check whether their data shifted."""
        if not self.settings.migration:
            return super().plan_evaluate(server_round, test)
        state = self.state
        models = state.models
        candidates = self.candidates
        if candidates is not models:
            models = models + candidates
        places = tuple(range(len(models) - len(candidates), len(models)))
        tasks = []
        for row, receives in enumerate(self.receivers()):
            received: tuple[int, ...] = (int(state.clusters[row]),) if test else ()
            received += places if receives else ()
            last: dict[str, Scalar] = {CHOSEN: int(state.chosen[row])}
            tasks.append(Task(state.clients[row], received, last))
        return Plan(tasks, models, dict(self.candidates_config))

    def absorb_evaluate(self, server_round: int, results: Results) -> None:
        """Move the clients that chose again."""
        if not self.settings.migration:
            return
        state = self.state
        record = self.run.record
        reports = [result for result in results if result.report is not None]
        record.drifted = len(reports)
        state.chosen[self.move(reports)] = server_round
        size = sum(vector.nbytes for vector in self.candidates)
        record.bytes_down += size * self.count_candidates(results)
