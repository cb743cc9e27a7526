"""Fielding: per-client moves plus selective global re-clustering.

Li et al., "Fielding: Clustered Federated Learning with Data Drift" (Algorithms 1 to 3).
Each round: share M participants over the K clusters -> train -> average per cluster ->
drifted clients report their label histogram -> each moves to the nearest centre, all
centres frozen -> centres are recomputed -> if one moved by at least theta/3, all
clients are clustered anew and the new models are means of the members' old models.

Server keeps: the latest histogram of every client (n x L floats). Leaves the device:
the model of a participant (d floats); the histogram (L floats) of a client whose data
changed, whether it takes part or not.

Deviations and readings, where the paper is silent or contradicts itself:

* The overview says that a centre moved "more than" tau, Algorithm 2 "at least" theta/3:
  at least; a shift of 0 never triggers, although theta is 0 when all centres are equal.
* theta is the mean pairwise distance of the centres after the move (Algorithm 2), over
  clusters that have members.
* "Old centre" is the centre before this event; `centre_reference: recluster` takes the
  one of the last re-clustering, with which slow drift accumulates.
* K-means minimises squared L2; nearest centre, theta, shift and silhouette use the
  representation's distance. Centres are means, which keeps histograms distributions.
* K is scanned from 2 to min(20, n - 1). The silhouette cannot choose K = 1, so a best
  score below `scan.homogeneous_below` means one cluster.
* M/K is rounded down, the remainder goes to the largest clusters, and a cluster smaller
  than its share gives all its members.
* A cluster's model is the plain mean of its participants (Algorithm 1, line 15);
  `weighting: samples` weighs them. A cluster without valid results keeps its model.
* Any change of the histogram is drift (`tolerance` is the L1 change still ignored).
* A cluster that all members left keeps centre and model, takes no part in theta, and
  can be joined again until the next re-clustering.
* All cluster models start from one common initial model. A client that joins later gets
  the model of its nearest cluster and counts as drifted.
* An iteration (drift event) is a round here: without reports a round changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cfl_flower.aggregation import mix_models
from cfl_flower.clustering import (
    KMeansScan,
    choose_clusters,
    cluster_centres,
    mixing_matrix,
    nearest_centre,
)
from cfl_flower.representations import (
    METRICS,
    Distance,
    digest,
    distances,
    mean_client_distance,
    parse_histogram,
)
from cfl_flower.settings import require
from cfl_flower.types import FloatArray, IntArray, Plan, Result, Scalar, Task, Vector
from strategies.base import (
    ClusteredState,
    ClusteredStrategy,
    StrategySettings,
    no_clusters,
)


@dataclass(frozen=True)
class FieldingSettings(StrategySettings):
    """Fielding's settings.

    Attributes
    ----------
    distance : {"l1", "js"}
        D, between representations.
    threshold : float
        tau / theta, the shift of a centre that triggers global re-clustering.
    centre_reference : {"event", "recluster"}
        What a centre's shift is measured from.
    tolerance : float
        The L1 change of its histogram up to which a client keeps silent.
    scan : KMeansScan
        How clients are clustered from scratch.
    """

    weighting: str = "plain"
    distance: str = "l1"
    threshold: float = 1 / 3
    centre_reference: str = "event"
    tolerance: float = 0.0
    scan: KMeansScan = field(default_factory=KMeansScan)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, allowed in (
            ("distance", tuple(METRICS)),
            ("centre_reference", ("event", "recluster")),
        ):
            value = getattr(self, name)
            require(value in allowed, f"strategy.{name}", value, " or ".join(allowed))
        for name in ("threshold", "tolerance"):
            value = getattr(self, name)
            require(value >= 0, f"strategy.{name}", value, "a number of at least 0")


@dataclass
class FieldingState(ClusteredState):
    """Fielding's state.

    Attributes
    ----------
    representations : array of shape (n, L)
        The latest representation of each client.
    centres : array of shape (K, L)
    reference : array of shape (K, L)
        The centres at the last re-clustering.
    """

    representations: FloatArray
    centres: FloatArray
    reference: FloatArray


def move_drifted(
    drifted: IntArray,
    representations: FloatArray,
    clusters: IntArray,
    centres: FloatArray,
    distance: Distance,
) -> IntArray:
    """Assign each drifted client to the nearest centre: Algorithm 2, lines 1 and 2.

    The centres stay frozen meanwhile, so the order of clients is of no effect.

    Parameters
    ----------
    drifted : int array
        Rows of the drifted clients.
    representations : array of shape (n, L)
    clusters : int array of shape (n,)
    centres : array of shape (K, L)

    Returns
    -------
    int array of shape (n,)
    """
    moved = clusters.copy()
    moved[drifted] = nearest_centre(representations[drifted], centres, distance)
    return moved


def recompute_centres(
    representations: FloatArray, clusters: IntArray, centres: FloatArray
) -> FloatArray:
    """Return the mean of each cluster's members: Algorithm 2, line 3.

    An empty cluster keeps its centre.
    """
    fresh = cluster_centres(representations, clusters, len(centres))
    return np.where(np.isnan(fresh), centres, fresh)


def mean_centre_distance(centres: FloatArray, distance: Distance) -> float:
    """Return theta, the mean distance over pairs of centres: Algorithm 2, line 4.

    0 for a single centre.
    """
    count = len(centres)
    if count < 2:
        return 0.0
    return float(distances(centres, centres, distance).sum()) / (count * (count - 1))


def largest_shift(old: FloatArray, new: FloatArray, distance: Distance) -> float:
    """Return how far the centre that moved most has moved."""
    return float(np.diagonal(distances(old, new, distance)).max())


def needs_reclustering(shift: float, theta: float, threshold: float) -> bool:
    """Return whether a shift triggers global re-clustering: Algorithm 2, line 5."""
    return shift > 0 and shift >= threshold * theta


class Fielding(ClusteredStrategy):
    """Algorithm 1, with the drift handling of Algorithm 2."""

    Settings = FieldingSettings
    State = FieldingState

    def initial_state(self) -> Any:
        """Return the state before any client is known."""
        labels = self.config.dataset.classes
        no_rows = np.zeros((0, labels), np.float32)
        no_centres = np.zeros((0, labels))
        model = [self.initial_model()]
        return FieldingState([], no_clusters(), model, no_rows, no_centres, no_centres)

    def question(self) -> dict[str, Scalar]:
        """Ask for the label histogram, if it changed by more than the tolerance."""
        tolerance = self.settings.tolerance
        return {"representation": "label_histogram", "tolerance": tolerance}

    def check_report(self, phase: str, result: Result) -> None:
        """Refuse anything but a label histogram; the hello must bring one."""
        if phase == "query" or "representation" in result.metrics:
            self._histogram(result)

    def welcome(self, round: int, newcomers: list[Result]) -> None:
        """Cluster the first clients (Algorithm 3); later ones join the nearest."""
        state = self.state
        points = np.stack([self._histogram(result) for result in newcomers])
        first = not state.clients
        if first:
            rng = self.rng("cluster", round)
            clusters = choose_clusters(points, self.distance, self.settings.scan, rng)
            state.models = state.models * (int(clusters.max()) + 1)
        else:
            clusters = nearest_centre(points, state.centres, self.distance)
        self.join(newcomers, clusters)
        state.representations = np.vstack([state.representations, points])
        if first:
            self._set_centres()
        else:
            self.adjust(round)

    def plan_evaluate(self, round: int, test: bool) -> Plan:
        """Ask every client whether its representation changed, tested or not."""
        state = self.state
        tasks = [
            Task(client, (cluster,) if test else (), {"held": digest(representation)})
            for client, cluster, representation in zip(
                state.clients,
                state.clusters.tolist(),
                state.representations,
                strict=True,
            )
        ]
        return Plan(tasks, state.models if test else [], self.question())

    def absorb_reports(self, round: int, results: list[Result]) -> None:
        """Move the clients that report drift, then look at the centres: Algorithm 2."""
        state, record = self.state, self.record
        reports = [result for result in results if "representation" in result.metrics]
        record.drifted, record.moved, record.reclustered = len(reports), 0, False
        if not reports:
            return
        drifted = self.rows(result.client for result in reports)
        state.representations[drifted] = [self._histogram(r) for r in reports]
        before = state.clusters
        state.clusters = move_drifted(
            drifted, state.representations, before, state.centres, self.distance
        )
        record.moved = int(np.count_nonzero(state.clusters != before))
        record.reclustered = self.adjust(round)

    def adjust(self, round: int) -> bool:
        """Recompute the centres; if one moved far, cluster all clients from scratch."""
        state, settings = self.state, self.settings
        self._heterogeneity = None
        before = state.centres
        if settings.centre_reference == "recluster":
            before = state.reference
        state.centres = recompute_centres(
            state.representations, state.clusters, state.centres
        )
        alive = state.sizes > 0
        theta = mean_centre_distance(state.centres[alive], self.distance)
        shift = largest_shift(before, state.centres, self.distance)
        if not needs_reclustering(shift, theta, settings.threshold):
            return False
        self.recluster(round)
        return True

    def recluster(self, round: int) -> None:
        """Cluster all clients; new models are means over members: lines 6 to 10."""
        state, old = self.state, self.state.clusters
        state.clusters = choose_clusters(
            state.representations,
            self.distance,
            self.settings.scan,
            self.rng("recluster", round),
        )
        mixing = mixing_matrix(old, state.clusters, len(state.models))
        state.models = mix_models(state.models, mixing)
        self._set_centres()

    def heterogeneity(self) -> float | None:
        """Return the mean client distance on the latest representations."""
        if self._heterogeneity is None:
            state = self.state
            self._heterogeneity = mean_client_distance(
                state.representations, state.clusters, self.distance
            )
        return self._heterogeneity

    _heterogeneity: float | None = None

    @property
    def distance(self) -> Distance:
        """D."""
        distance: Distance = self.settings.distance
        return distance

    def _set_centres(self) -> None:
        state = self.state
        state.centres = cluster_centres(
            state.representations, state.clusters, len(state.models)
        )
        state.reference = state.centres
        self._heterogeneity = None

    def _histogram(self, result: Result) -> Vector:
        data = result.metrics.get("representation")
        return parse_histogram(data, self.config.dataset.classes)
