"""Fielding: per-client moves plus selective global re-clustering.

Li et al., "Fielding: Clustered Federated Learning with Data Drift" (Algorithms 1 to 3).
Each round: share M participants over the K clusters -> train -> average per cluster ->
drifted clients report their label histogram -> each moves to the nearest centre, all
centres frozen -> centres are recomputed -> if one moved by at least theta/3, all
clients are clustered anew and the new models are means of the members' old models.

Server keeps: the latest histogram of every client (n x L floats) and its number of
samples. Leaves the device: the model of a participant (d floats); the histogram
(L floats) of a client whose data changed, whether it takes part or not.

Deviations and readings, where the paper is silent or contradicts itself:

* The overview says that a centre moved "more than" tau, Algorithm 2 "at least" theta/3:
  at least; a shift of 0 never triggers, although theta is 0 when all centres are equal.
* Algorithm 2 as printed recomputes the centres inside of the loop over clients;
  section 2.2 freezes them while all are assigned, which makes the order of no effect:
  frozen.
* A re-clustered client brings the model of the cluster it moved to in this event
  (lines 6 and 7); "old cluster model" in section 2.3 could also be the one before.
* theta is the mean pairwise distance of the centres after the move (Algorithm 2), over
  clusters that have members.
* "Old centre" is the centre before this event; `centre_reference: recluster` takes the
  one of the last re-clustering, with which slow drift accumulates.
* K-means minimises squared L2; nearest centre, theta, shift and silhouette use the
  representation's distance. Centres are means, which keeps histograms distributions.
* K is scanned from 2 to min(20, n - 1). The silhouette cannot choose K = 1: the clients
  are one cluster if chance explains their histograms (`significance`; 0 for the
  paper's rule). theta is 0 then, so that every report asks the question anew.
* M/K is rounded down, the remainder goes to the largest clusters, and a cluster smaller
  than its share gives all its members, so fewer than M may take part. With M < K, M
  clusters are drawn in each round.
* A cluster's model is the plain mean of its participants (Algorithm 1, line 15);
  `weighting: samples` weighs them. A cluster without valid results keeps its model.
* Any change of the histogram is drift (`tolerance` is the L1 change still ignored). A
  client without samples has no histogram: uniform at the hello, silent later.
* A cluster that all members left is not dropped at once: it keeps centre and model,
  takes no part in theta, and can be joined again until the next re-clustering.
* All cluster models start from one common initial model. Clients that join later go to
  the nearest centre, as drifted ones do; their arrival may trigger a re-clustering,
  which is in force in the round in which it is recorded.
* An iteration (drift event) is a round here: without reports a round changes nothing.
* tau = 0 (Appendix F.1) re-clusters whenever a centre moved, not at every report.
* The paper trains all methods with FedProx, batches of 20 and 20 local steps; the
  default here is plain SGD (`strategy.local`, the same for every method).
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
from cfl_flower.errors import InvalidResultError
from cfl_flower.representations import (
    METRICS,
    Distance,
    chance_explains,
    digest,
    distances,
    mean_client_distance,
    parse_histogram,
)
from cfl_flower.settings import require, require_fraction, require_one_of
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
    significance : float
        Probability of clustering clients that chance alone tells apart.
    scan : KMeansScan
        How clients are clustered from scratch.
    """

    weighting: str = "plain"
    sampling: str = "clusters"
    distance: str = "l1"
    threshold: float = 1 / 3
    centre_reference: str = "event"
    tolerance: float = 0.0
    significance: float = 0.001
    scan: KMeansScan = field(default_factory=KMeansScan)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, allowed in (
            ("distance", tuple(METRICS)),
            ("centre_reference", ("event", "recluster")),
        ):
            require_one_of(f"strategy.{name}", getattr(self, name), allowed)
        for name in ("threshold", "tolerance"):
            value = getattr(self, name)
            require(value >= 0, f"strategy.{name}", value, "a number of at least 0")
        require_fraction("strategy.significance", self.significance)


@dataclass
class FieldingState(ClusteredState):
    """Fielding's state.

    Attributes
    ----------
    representations : array of shape (n, L)
        The latest representation of each client.
    counts : int array of shape (n,)
        The number of samples behind it.
    centres : array of shape (K, L)
    reference : array of shape (K, L)
        The centres at the last re-clustering.
    """

    representations: FloatArray
    counts: IntArray
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

    The centres stay frozen meanwhile (section 2.2), so that the order of clients is of
    no effect.

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
        nobody, model = no_clusters(), [self.initial_model()]
        return FieldingState([], nobody, model, no_rows, nobody, no_centres, no_centres)

    def question(self) -> dict[str, Scalar]:
        """Ask for the label histogram, if it changed by more than the tolerance."""
        tolerance = self.settings.tolerance
        return {"representation": "label_histogram", "tolerance": tolerance}

    def check_report(self, phase: str, result: Result) -> None:
        """Refuse anything but a label histogram; the hello must bring one."""
        if phase == "query" or "representation" in result.metrics:
            self._read_report(result)

    def welcome(self, round: int, newcomers: list[Result]) -> None:
        """Cluster the first clients (Algorithm 3); later ones join the nearest."""
        state = self.state
        points, counts = self._read_reports(newcomers)
        first = not state.clients
        state.representations = np.vstack([state.representations, points])
        state.counts = np.append(state.counts, counts)
        if first:
            clusters = self.cluster_from_scratch(self.rng("cluster", round))
            self.join(newcomers, clusters)
            state.models = state.models * (int(clusters.max()) + 1)
            self._set_centres()
        else:
            self.join(newcomers, nearest_centre(points, state.centres, self.distance))
            self.record.reclustered = self.adjust(self.rng("recluster-join", round))

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
        record.drifted, record.moved = len(reports), 0
        record.reclustered = bool(record.reclustered)
        if not reports:
            return
        drifted = self.rows(result.client for result in reports)
        state.representations[drifted], state.counts[drifted] = self._read_reports(
            reports
        )
        before = state.clusters
        state.clusters = move_drifted(
            drifted, state.representations, before, state.centres, self.distance
        )
        record.moved = int(np.count_nonzero(state.clusters != before))
        record.reclustered |= self.adjust(self.rng("recluster", round))

    def adjust(self, rng: np.random.Generator) -> bool:
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
        self.recluster(rng)
        return True

    def recluster(self, rng: np.random.Generator) -> None:
        """Cluster all clients; new models are means over members: lines 6 to 10.

        Each member brings the model of its cluster of now, after the move.
        """
        state, old = self.state, self.state.clusters
        state.clusters = self.cluster_from_scratch(rng)
        mixing = mixing_matrix(old, state.clusters, len(state.models))
        state.models = mix_models(state.models, mixing)
        self._set_centres()

    def cluster_from_scratch(self, rng: np.random.Generator) -> IntArray:
        """Cluster all clients by their representations: Algorithm 3."""
        state, settings = self.state, self.settings
        points = state.representations
        if chance_explains(points, state.counts, settings.significance):
            return np.zeros(len(points), np.int64)
        return choose_clusters(points, self.distance, settings.scan, rng)

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

    def _read_report(self, result: Result) -> tuple[Vector, int]:
        """Return the histogram and the number of samples behind it."""
        data, count = (result.metrics.get(k) for k in ("representation", "samples"))
        histogram = parse_histogram(data, self.config.dataset.classes)
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise InvalidResultError("representation", f"samples={count!r}, not >= 0")
        return histogram, count

    def _read_reports(self, results: list[Result]) -> tuple[FloatArray, IntArray]:
        histograms, counts = zip(*map(self._read_report, results), strict=True)
        return np.stack(histograms), np.array(counts, np.int64)
