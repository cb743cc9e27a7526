"""CFL: clusters are split in two where their clients' updates disagree.

Sattler et al., "Clustered Federated Learning: Model-Agnostic Distributed Multitask
Optimization Under Privacy Constraints" (TNNLS 2021; Algorithms 1 and 2). Everyone takes
part in every round. A cluster whose mean update is small while some update is large has
come to a point that is stationary for all together and for nobody alone: its clients
are split in two by complete linkage on the cosines of their updates, if the parts are
far enough apart. Each part then goes on with FedAvg from the same model.

Server keeps: a model for each cluster, and those of before each split. Leaves the
device: the trained model (d floats), of every client in every round.

Deviations and readings, where the paper and its code part ways:

* All clients take part, whatever `participants` says. A cluster of which anyone's
  update is missing in a round is not split in that round.
* The norms of the mean and of the largest update are compared with eps1 and eps2 as
  they are, as in the code, whose values are the defaults; or in multiples of the mean
  norm of the first round's updates (`norms: relative`), since they depend on the
  network. Updates mostly get shorter from there on, so that the code's 1.6 would hardly
  be met: there the defaults are ours.
* Complete linkage, as in the code, makes each side alike. It need not find the sides
  with the smallest largest cosine between them, which joining the most alike first does
  (single linkage): with a `gamma`, splits are left undone that those would have passed.
* A split is kept if sqrt((1 - a) / 2) > gamma, a being the largest cosine across its
  parts (paper, section 4). The code leaves that out; with gamma = 0 only parts with
  equal updates stay together.
* The code takes numbers within a cluster for numbers of clients, which is wrong from
  the second level of splits on; here they are mapped back.
* The paper lets a client go up the tree to the best of its cluster's ancestors, on
  validation data; here, if asked to (`service: best`), by its training loss, which
  favours the cluster's own model. What it fetches for that is part of the test and not
  counted.
* Updates are averaged plainly, as in the code.
* Each round's optimiser starts afresh; the code keeps its momentum, and lets the
  learning rate decay by 0.99 in a round.
* A client that joins later goes to the largest cluster, until a split moves it; the
  paper leads it down the tree by the updates of all splits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from cfl_flower.clustering.algorithms import complete_linkage, number_by_appearance
from cfl_flower.clustering.similarity import cosine_matrix
from cfl_flower.communication.results import Results
from cfl_flower.learning.aggregation import mean_model
from cfl_flower.settings import require, require_fraction, require_one_of
from cfl_flower.state import ClusteredState, Weighting
from cfl_flower.types import FloatArray, IntArray, Plan, Result, Task, Vector
from strategies.base import ClusteredStrategy, StrategySettings, no_clusters

BOUNDS = {"absolute": (0.4, 1.6), "relative": (0.2, 0.3)}
"""eps1 and eps2 where they are not told: the code's, and ours."""


@dataclass(frozen=True)
class CFLSettings(StrategySettings):
    """CFL's settings.

    Attributes
    ----------
    eps1 : float or None
        A cluster is stationary if its mean update is shorter; None for `BOUNDS`.
    eps2 : float or None
        Its clients are not if their longest update is longer.
    norms : {"absolute", "relative"}
        How the two are meant: as they are, or in multiples of the mean norm of the
        first round's updates.
    gamma : float
        How far apart the parts of a split must be, from 0 to 1.
    first : int
        Rounds without any split.
    smallest : int
        Members up to which a cluster is left whole.
    service : {"cluster", "best"}
        Clients are served their cluster's model, or the best of it and its ancestors.
    """

    weighting: Weighting = "plain"
    eps1: float | None = None
    eps2: float | None = None
    norms: str = "absolute"
    gamma: float = 0.0
    first: int = 20
    smallest: int = 2
    service: str = "cluster"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("eps1", "eps2"):
            value = getattr(self, name)
            ok = value is None or 0 <= value < math.inf
            require(ok, f"strategy.{name}", value, "null or a number of at least 0")
        require_fraction("strategy.gamma", self.gamma)
        for name, least in (("first", 0), ("smallest", 1)):
            value = getattr(self, name)
            require(value >= least, f"strategy.{name}", value, f"at least {least}")
        require_one_of("strategy.norms", self.norms, ("absolute", "relative"))
        require_one_of("strategy.service", self.service, ("cluster", "best"))

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
    """CFL's state.

    Attributes
    ----------
    ancestors : list of vectors
        The model of each cluster that was split, as of before.
    lineage : list of K lists of int
        The ancestors of each cluster, the oldest first.
    scale : float or None
        The mean norm of the first round's updates.
    """

    ancestors: list[Vector]
    lineage: list[list[int]]
    scale: float | None


def bipartition(cosines: FloatArray) -> IntArray:
    """Return the side, 0 or 1, of each client, by complete linkage.

    Parameters
    ----------
    cosines : array of shape (n, n)
        n is at least 2.

    Returns
    -------
    int array of shape (n,)
        The first client is on side 0.

    Examples
    --------
    >>> angles = np.radians([0, 170, 10, 190])
    >>> bipartition(np.cos(angles[:, None] - angles))
    array([0, 1, 0, 1])
    """
    return number_by_appearance(complete_linkage(1 - cosines, 2))


def separation(cosines: FloatArray, sides: IntArray) -> float:
    """Return sqrt((1 - a) / 2), with the largest cosine a across the sides.

    0 for equal directions, 1 for opposite ones; also if one side is empty, 0.

    Examples
    --------
    >>> separation(np.array([[1.0, -1.0], [-1.0, 1.0]]), np.array([0, 1]))
    1.0
    """
    across = cosines[np.ix_(sides == 0, sides == 1)]
    largest = float(np.clip(across.max(initial=-1), -1, 1)) if across.size else 1.0
    return math.sqrt((1 - largest) / 2)


class CFL(ClusteredStrategy):
    """Algorithm 2."""

    Settings = CFLSettings
    State = CFLState

    def initial_state(self) -> Any:
        """Return the state before any client is known: one cluster, never split."""
        return CFLState([], no_clusters(), [self.initial_model()], [], [[]], None)

    def welcome(self, round: int, newcomers: list[Result]) -> None:
        """Take newcomers into the largest cluster."""
        largest = int(self.state.sizes.argmax())
        self.join(newcomers, np.full(len(newcomers), largest))

    def choose_participants(self, round: int) -> list[int]:
        """Return everyone."""
        del round
        return list(range(len(self.state.clients)))

    def absorb_train(self, round: int, results: Results) -> None:
        """Split clusters whose clients disagree, then average within each."""
        state, count = self.state, len(self.state.models)
        rows = self.rows(result.client for result in results)
        found = dict(zip(rows.tolist(), results, strict=True))
        before = state.clusters.copy()
        norms = [self.consider(round, cluster, found) for cluster in range(count)]
        self.record.moved = int(np.count_nonzero(state.clusters != before))
        self.record.measures["mean_norm"] = [norm[0] for norm in norms]
        self.record.measures["largest_norm"] = [norm[1] for norm in norms]
        self.record.measures["split"] = len(state.models) - count
        super().absorb_train(round, results)

    def consider(
        self, round: int, cluster: int, found: dict[int, Result]
    ) -> tuple[float | None, float | None]:
        """Split a cluster if it must be.

        Parameters
        ----------
        round, cluster : int
        found : dict of int to Result
            The results by the client's row.

        Returns
        -------
        (float, float)
            The norms of its mean and of its largest update; None without any.
        """
        state, settings = self.state, self.settings
        members = np.flatnonzero(state.clusters == cluster)
        there = [row for row in members.tolist() if row in found]
        if not there:
            return None, None
        model = state.models[cluster]
        updates = [found[row].arrays[0] - model for row in there]
        each = [float(np.linalg.norm(update)) for update in updates]
        mean, largest = float(np.linalg.norm(mean_model(updates))), max(each)
        if state.scale is None:
            state.scale = float(np.mean(each))
        unit = state.scale if settings.norms == "relative" else 1.0
        eps1, eps2 = settings.bounds
        stationary = mean < eps1 * unit and largest > eps2 * unit
        whole = len(there) == len(members) > settings.smallest
        if round > settings.first and whole and stationary:
            cosines = cosine_matrix(updates)
            sides = bipartition(cosines)
            if separation(cosines, sides) > settings.gamma:
                self.split(cluster, members[sides == 1])
        return mean, largest

    def split(self, cluster: int, leaving: IntArray) -> None:
        """Let some members of a cluster go their own way, and keep its model."""
        state = self.state
        state.clusters[leaving] = len(state.models)
        line = [*state.lineage[cluster], len(state.ancestors)]
        state.ancestors.append(state.models[cluster])
        state.models.append(state.models[cluster])
        state.lineage[cluster] = line
        state.lineage.append(line)

    def plan_evaluate(self, round: int, test: bool) -> Plan:
        """Test each cluster's model, or let clients take the best of its line."""
        plan, state = super().plan_evaluate(round, test), self.state
        if not test or self.settings.service == "cluster":
            return plan
        first = len(state.models)
        lines = [tuple(first + each for each in line) for line in state.lineage]
        tasks = [
            Task(task.client, task.models + lines[task.models[0]])
            for task in plan.tasks
        ]
        return Plan(tasks, [*state.models, *state.ancestors])
