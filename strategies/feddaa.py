"""FedDAA: FedRC in time steps, which tell drift of the concept from other drift.

Peng and Tang, "FedDAA: Dynamic Client Clustering for Concept Drift Adaptation in
Federated Learning" (arXiv 2506.21054). When data of clients have changed, all report
the mean outputs of the first component for each label, their prototypes. k-means on
these finds how many components there have to be. A client whose prototypes, on its
data from before and on its present ones, are nearest to the same centre goes on with
both; to others labels mean something else, and they train on their present data alone.

Server keeps: FedRC's; the centres (K L^2 floats). Leaves the device: FedRC's; at a time
step the prototypes (L^2 floats); in which rounds its data change.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from cfl_flower.clustering.algorithms import (
    KMeansScan,
    choose_clusters,
    cluster_centres,
)
from cfl_flower.communication.results import Results
from cfl_flower.engine.method import Disclosure
from cfl_flower.settings import Count, settings
from cfl_flower.types import CHANGED, FloatArray, Plan, Result, Scalar, Task, Vector
from clients.feddaa import KEPT, PROTOTYPES, STEP
from strategies.fedrc import FedRC, FedRCSettings, FedRCState, even_shares


@settings("strategy")
class FedDAASettings(FedRCSettings):
    """FedDAA's settings."""

    client: str = "clients.feddaa.FedDAAClient"
    components: Count = 2
    """The least number of components, M; a time step adds as many as it finds more
    clusters, and none is ever given up."""
    scan: KMeansScan = field(default_factory=lambda: KMeansScan(2, 9, 0.0))
    """How the number of clusters is found."""


@dataclass
class FedDAAState(FedRCState):
    """FedDAA's state."""

    due: bool = True
    """Whether data have changed since the last time step began."""
    step: int = 0
    """The round in which the last time step began."""
    centres: FloatArray = field(default_factory=lambda: np.zeros((0, 1)))
    """The centres of the clusters of the last time step, shape (K, L^2)."""


class FedDAA(FedRC):
    """FedRC with as many components as prototypes have clusters."""

    Settings = FedDAASettings
    State = FedDAAState
    discloses = Disclosure(
        models=3,
        uncovered="label shares of each component and mean outputs for each label",
        singly="clusters clients by their mean outputs for each label",
    )

    def plan_train(self, server_round: int) -> Plan:
        """Begin a time step if data have changed, then train as FedRC does."""
        if self.state.due:
            self.begin_step(server_round)
        plan = super().plan_train(server_round)
        assert plan.sum_spec is not None
        # No client returns centres.
        spec = replace(plan.sum_spec, bases=plan.sum_spec.bases[:-1])
        told: dict[str, Scalar] = {STEP: self.state.step}
        return replace(plan, config=told, reply=plan.reply[:-1], sum_spec=spec)

    def sent(self) -> list[Vector]:
        """Return what FedRC sends, and all centres in one vector."""
        return [*super().sent(), self.state.centres.astype(np.float32).ravel()]

    def begin_step(self, server_round: int) -> None:
        """Cluster the clients' prototypes, and add components if there are too few."""
        state = self.state
        classes = self.run.config.dataset.classes
        tasks = [Task(client, (0,)) for client in state.clients]
        ask = Plan(tasks, state.models[:1], {PROTOTYPES: True}, (classes**2,))
        answers = self.run.ask(server_round, ask)
        told = [each.arrays[0] for each in answers if each.num_examples]
        if not told:
            return
        points = np.stack(told).astype(float)
        rng = self.run.rng("prototypes", server_round)
        clusters = choose_clusters(points, "l2", self.settings.scan, rng)
        found = int(clusters.max()) + 1
        state.centres = cluster_centres(points, clusters, found)
        known = len(state.models)
        more = self.run.initial_models(max(known, found))[known:]
        state.models = [*state.models, *more]
        state.label_shares = even_shares(len(state.models), classes)
        state.step = server_round
        state.due = False
        self.run.record.measures["found"] = float(found)

    def absorb_train(self, server_round: int, results: Results) -> None:
        """Make FedRC's means; note how many trained on their earlier data as well."""
        super().absorb_train(server_round, results)
        kept = [result.metrics.get(KEPT) is True for result in results]
        if kept:
            self.run.record.measures["kept"] = sum(kept) / len(kept)

    def plan_evaluate(self, server_round: int, test: bool) -> Plan:
        """Let all test their mixtures, and say whether their data change."""
        plan = super().plan_evaluate(server_round, test)
        everyone = [Task(client) for client in self.state.clients]
        return plan if test else replace(plan, tasks=everyone)

    def read_result(self, phase: str, result: Result) -> Result:
        """Read whether the client's data change."""
        changed = phase == "evaluate" and result.metrics.get(CHANGED) is True
        return replace(result, report=True) if changed else result

    def absorb_evaluate(self, server_round: int, results: Results) -> None:
        """Begin a time step in the next round if anybody's data change."""
        changed = sum(result.report is not None for result in results)
        self.run.record.drifted = changed
        self.run.record.moved = 0
        # The time step clusters all clients' prototypes anew.
        self.run.record.reclustered = changed > 0
        self.state.due = self.state.due or changed > 0
