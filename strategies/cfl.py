"""CFL: clusters are split in two where their clients' updates disagree.

Sattler et al., "Clustered Federated Learning: Model-Agnostic Distributed Multitask
Optimization Under Privacy Constraints" (TNNLS 2021; Algorithms 1 and 2). Everyone takes
part in every round. Where a cluster's mean update is small while some update is large,
its clients are split in two by complete linkage on the cosines of their updates, if the
parts are far enough apart. Each part goes on with FedAvg from the same model.

Server keeps: a model for each cluster. Leaves the device: the trained model (d floats),
of every client in every round.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from cfl_flower.clustering.algorithms import complete_linkage, number_by_appearance
from cfl_flower.clustering.similarity import cosine_matrix
from cfl_flower.communication.results import Results
from cfl_flower.engine.method import (
    ClusteredStrategy,
    Disclosure,
    Supports,
    cluster_plan,
)
from cfl_flower.learning.aggregation import RunningMean
from cfl_flower.settings import Count, Fraction, Natural, NonNegative, settings
from cfl_flower.state import ClusteredState, StrategySettings, Weighting
from cfl_flower.types import FloatArray, IntArray, Plan, Result

BOUNDS = {"absolute": (0.4, 1.6), "relative": (0.2, 0.3)}
"""The defaults of eps1 and eps2: the code's, and ours."""


PATIENCE = 3
"""Rounds without an update after which a client is not waited for: nobody who fails in
each round keeps the others together."""


@settings("strategy")
class CFLSettings(StrategySettings):
    """CFL's settings."""

    waits = "first"

    weighting: Weighting = "plain"
    eps1: NonNegative | None = None
    """A cluster is split if its mean update is shorter than this; null: 0.4, or 0.2
    with relative norms."""
    eps2: NonNegative | None = None
    """A cluster is split only if its longest update is longer than this; null: 1.6, or
    0.3 with relative norms."""
    norms: Literal["absolute", "relative"] = "absolute"
    """The unit of eps1 and eps2: 1, as in the code; or the mean norm of the first
    round's updates."""
    gamma: Fraction = 0.0
    """gamma_max, how far apart the parts of a split must be."""
    first: Natural = 20
    """Rounds without any split."""
    smallest: Count = 2
    """Clusters with at most this number of members are not split."""

    @property
    def bounds(self) -> tuple[float, float]:
        """eps1 and eps2, in the unit of `norms`."""
        eps1, eps2 = BOUNDS[self.norms]
        return (
            eps1 if self.eps1 is None else self.eps1,
            eps2 if self.eps2 is None else self.eps2,
        )


@dataclass
class CFLState(ClusteredState):
    """CFL's state."""

    scale: float | None = None
    """The mean norm of the first round's updates."""
    missed: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    """The rounds in a row without an update of each client, shape (n,)."""


def bipartition(cosines: FloatArray) -> IntArray:
    """Return each client's side by complete linkage; the first client is on side 0.

    ``cosines`` has the shape (n, n), with n of at least 2.

    Examples
    --------
    >>> angles = np.radians([0, 170, 10, 190])
    >>> bipartition(np.cos(angles[:, None] - angles))
    array([0, 1, 0, 1])
    """
    # Two parts, of which the most similar across them are least so.
    return number_by_appearance(complete_linkage(1 - cosines, 2))


def separation(cosines: FloatArray, sides: IntArray) -> float:
    """Return sqrt((1 - a) / 2), with the largest cosine a across the sides.

    It is 0 for equal directions and if a side is empty, 1 for opposite directions.

    Examples
    --------
    >>> separation(np.array([[1.0, -1.0], [-1.0, 1.0]]), np.array([0, 1]))
    1.0
    """
    across = cosines[np.ix_(sides == 0, sides == 1)]
    largest = float(np.clip(across.max(initial=-1), -1, 1)) if across.size else 1.0
    # The bound on the cosine across the parts, as in the stopping rule.
    return math.sqrt((1 - largest) / 2)


class CFL(ClusteredStrategy):
    """Algorithm 2."""

    Settings = CFLSettings
    State = CFLState
    supports = Supports(unused=("participants", "strategy.sampling"))
    discloses = Disclosure(singly="splits clusters by single clients' updates")

    def welcome(self, server_round: int, newcomers: list[Result]) -> None:
        """Add newcomers to the largest cluster."""
        largest = int(self.state.sizes.argmax())
        self.state.join(newcomers, np.full(len(newcomers), largest))

    def plan_train(self, server_round: int) -> Plan:
        """Let every client with samples train its cluster's model."""
        able = self.run.participants.with_samples()
        return cluster_plan(self.state, np.flatnonzero(able))

    def absorb_train(self, server_round: int, results: Results) -> None:
        """Split clusters whose clients' updates disagree, then average in each."""
        state = self.state
        count = len(self.state.models)
        rows = self.state.rows(result.client for result in results)
        found = dict(zip(rows.tolist(), results, strict=True))
        new = len(state.clients) - len(state.missed)
        state.missed = np.pad(state.missed, (0, new)) + 1
        state.missed[rows] = 0
        before = state.clusters.copy()
        for cluster in range(count):
            self.split_if_due(server_round, cluster, found)
        self.run.record.moved = int(np.count_nonzero(state.clusters != before))
        self.run.record.measures["split"] = len(state.models) - count
        super().absorb_train(server_round, results)

    def split_if_due(
        self, server_round: int, cluster: int, found: dict[int, Result]
    ) -> None:
        """Split a cluster at a stationary point, if its parts are far enough apart.

        ``found`` has the results by their client's row.
        """
        state = self.state
        settings = self.settings
        members = np.flatnonzero(state.clusters == cluster)
        present = [row for row in members.tolist() if row in found]
        if not present:
            return
        model = state.models[cluster]
        total = RunningMean()
        norms = list[float]()
        # One update at a time, as all of them would double the memory of the results.
        for row in present:
            update = found[row].arrays[0] - model
            total.add(update)
            norms.append(float(np.linalg.norm(update)))
        mean = float(np.linalg.norm(total.value()))
        largest = max(norms)
        if state.scale is None:
            state.scale = float(np.mean(norms))
        unit = state.scale if settings.norms == "relative" else 1.0
        eps1, eps2 = settings.bounds
        # |mean update| < eps1 and max |update| > eps2.
        stationary = mean < eps1 * unit and largest > eps2 * unit
        # Who has left, has no samples or keeps failing cannot disagree.
        able = self.run.participants.able() & (state.missed < PATIENCE)
        whole = len(present) == able[members].sum() > settings.smallest
        if server_round > settings.first and whole and stationary:
            # Algorithm 1: bipartition by the cosines of the updates.
            cosines = cosine_matrix([found[row].arrays[0] - model for row in present])
            sides = bipartition(cosines)
            # The split is accepted if sqrt((1 - a) / 2) > gamma_max.
            if separation(cosines, sides) > settings.gamma:
                self.split(cluster, np.array(present)[sides == 1])

    def split(self, cluster: int, leaving: IntArray) -> None:
        """Move some members of a cluster to a new one with the same model."""
        state = self.state
        state.clusters[leaving] = len(state.models)
        state.models.append(state.models[cluster])
