"""Fielding: per-client moves plus selective global re-clustering.

Li et al., "Fielding: Clustered Federated Learning with Data Drift" (Algorithms 1 to 3).
Each round: share M participants over the K clusters -> train -> average per cluster ->
drifted clients report their label histogram -> each moves to the nearest centre, all
centres frozen -> centres are recomputed -> if one moved by at least tau, all clients
are clustered anew and the new models are means of the members' old models. tau is a
third of theta, the mean distance between centres. (The paper asks for drift at the
start of a round, line 4; here reports come with the tests of the round before.)

Server keeps: the latest representation of every client (n x L floats) and its number of
samples. Leaves the device: the model of a participant (d floats); the histogram (L
floats) or another representation, with the number of samples, of every client when it
joins and whenever its data changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.random import Generator

from cfl_flower.client.drift_report import HELD, DriftReport, ReportRequest
from cfl_flower.clustering.algorithms import (
    KMeansScan,
    choose_clusters,
    cluster_centres,
    grown,
)
from cfl_flower.clustering.representations import (
    Distance,
    chance_explains,
    check_histogram,
    digest,
    mean_client_distance,
)
from cfl_flower.communication.results import Results
from cfl_flower.engine.method import (
    ClusteredStrategy,
    Description,
    Disclosure,
    Supports,
)
from cfl_flower.settings import Fraction, NonNegative, require, settings
from cfl_flower.state import (
    Sampling,
    StrategySettings,
    Weighting,
    no_clusters,
)
from cfl_flower.types import (
    ClientId,
    FloatArray,
    IntArray,
    Plan,
    Result,
    Task,
    Vector,
)
from strategies.fielding.reclustering import (
    CentreTrigger,
    DriftEvent,
    FieldingState,
    PairwiseTrigger,
    Trigger,
    cluster_without_single,
    move_drifted,
    recompute_centres,
)
from strategies.fielding.report_noise import NoNoise, Privacy
from strategies.fielding.representations import LabelHistogram, Representation
from strategies.fielding.threshold import (
    FixedThreshold,
    LearnedThreshold,
    ThresholdLearning,
)


@settings("strategy")
class FieldingSettings(StrategySettings):
    """Fielding's settings."""

    idle_unless = StrategySettings.idle_unless | {"threshold": "trigger.name=centre"}

    client: str = "clients.fielding.FieldingClient"
    weighting: Weighting = "plain"
    sampling: Sampling = "clusters"
    distance: Distance = "l1"
    """D, between representations; `js` is for label histograms, `l2` is squared."""
    threshold: NonNegative = 1 / 3
    """tau / theta: all clients are re-clustered when a centre moves by this multiple of
    theta, the mean distance between centres."""
    tolerance: NonNegative = 0.0
    """Change of a representation, in D, up to which a client does not report."""
    reporters: Literal["all", "participants"] = "all"
    """Clients whose reports of drift count: all, or only those that trained in the
    round (Figure 2b)."""
    significance: Fraction = 0.001
    """Level of the test whether one label distribution explains all clients, which are
    then one cluster; 0 for no test."""
    scan: KMeansScan = field(default_factory=KMeansScan)
    """Clustering from scratch."""
    representation: Representation = field(default_factory=LabelHistogram)
    """Representation of a client's data."""
    trigger: Trigger = field(default_factory=CentreTrigger)
    """Condition of a global re-clustering."""
    threshold_learning: ThresholdLearning = field(default_factory=FixedThreshold)
    """Fixed threshold, or one learned from trials (Appendix F.1)."""
    privacy: Privacy = field(default_factory=NoNoise)
    """Noise on reported label histograms."""

    def __post_init__(self) -> None:
        super().__post_init__()
        kind = self.representation.name
        metrics = self.representation.metrics
        allowed = f"{' or '.join(metrics)} with strategy/representation={kind}"
        require(self.distance in metrics, "strategy.distance", self.distance, allowed)
        # The effect of one sample on a gradient or an embedding has no bound.
        ok = kind == "label_histogram" or not self.privacy.on
        allowed = "label_histogram with strategy/privacy, which protects labels alone"
        require(ok, "strategy/representation", kind, allowed)

    @property
    def reads_extractor(self) -> bool:
        """Whether a network is taken apart, for embeddings."""
        return self.representation.name == "embedding"

    def check_privacy(self) -> None:
        """Require that reports hide whole clients, and that tests change nothing."""
        noise = self.privacy
        learning = self.threshold_learning
        allowed = "client with privacy=, as the others hide one label of a client"
        require(noise.whole_client, "strategy/privacy", noise.name, allowed)
        ok = not isinstance(learning, LearnedThreshold)
        allowed = "none with privacy=, which does not cover results of tests"
        require(ok, "strategy/threshold_learning", "trials", allowed)


def set_centres(state: FieldingState) -> None:
    """Set the centres of new clusters."""
    points = state.representations
    state.centres = cluster_centres(points, state.clusters, len(state.models))


# Algorithm 3: clustering -------------------------------------------------------------


def cluster_clients(
    state: FieldingState, settings: FieldingSettings, rng: Generator
) -> IntArray:
    """Cluster all clients by their representations, K by the silhouette."""
    points = state.representations
    kind = settings.representation
    noise = settings.privacy.variances(state.counts)
    # Only label histograms have a test whether clients differ by chance alone.
    tested = not kind.by_model
    if tested and chance_explains(points, state.counts, settings.significance, noise):
        return np.zeros(len(points), np.int64)

    def choose(points: FloatArray) -> IntArray:
        # Algorithm 3, line 2: K with the largest silhouette.
        least = kind.least_silhouette
        return choose_clusters(points, settings.distance, settings.scan, rng, least)

    # What a model says of data has no bound. As printed, Algorithm 3 clusters once.
    unbounded = kind.by_model and settings.scan.substantial > 0
    return cluster_without_single(points, choose) if unbounded else choose(points)


class Fielding(ClusteredStrategy):
    """Algorithm 1; lines 5 to 16, the training, are FedAvg's in each cluster."""

    Settings = FieldingSettings
    State = FieldingState
    supports = Supports(centres=True)
    discloses = Disclosure(reports=True)

    def initial_state(self) -> Any:
        """Return the state before any client is known: line 2."""
        representation = self.settings.representation
        config = self.run.config
        initial = self.run.initial_model()
        self.classes = config.dataset.classes
        self.width = representation.width(self.run.network, self.classes)
        self.shared: list[Vector] = []
        if representation.by_model:
            simulated = self.run.timeline is not None
            self.shared = [representation.shared.make(config, initial, simulated)]
        return FieldingState([], no_clusters(), [initial], shared=self.shared)

    @property
    def request(self) -> ReportRequest:
        """The request for representations that have changed."""
        settings = self.settings
        shared = digest(self.shared[0]) if self.shared else ""
        return ReportRequest(settings.representation.name, settings.tolerance, shared)

    def hello(self, clients: Sequence[ClientId]) -> Plan:
        """Ask for first representations, and send the shared model."""
        models = tuple(range(len(self.shared)))
        tasks = [Task(client, models) for client in clients]
        return Plan(tasks, self.shared, self.request.to_config())

    def read_result(self, phase: str, result: Result) -> Result:
        """Read a report, which queries always have, and tests if data changed."""
        reported = phase == "query" or "representation" in result.metrics
        if phase == "train" or not reported:
            return result
        representation = self.settings.representation
        kind = representation.name.replace("_", " ")
        report = DriftReport.from_metrics(result.metrics, self.width, kind)
        if representation.has_labels:
            check_histogram(report.representation[: self.classes])
        return replace(result, report=report)

    def welcome(self, server_round: int, newcomers: list[Result]) -> None:
        """Cluster the first clients: line 1. Later ones are placed as drifted ones."""
        state = self.state
        settings = self.settings
        points, counts = DriftReport.stack(newcomers)
        rows = len(state.clients) + np.arange(len(newcomers))
        state.representations = grown(state.representations, points)
        state.counts = np.append(state.counts, counts)
        state.reports = np.append(state.reports, np.ones(len(counts), np.int64))
        if state.clients:
            # Algorithm 2 moves them from this cluster to the nearest.
            self.state.join(newcomers, np.zeros(len(newcomers), np.int64))
            rng = self.run.rng("recluster-join", server_round)
            _, self.run.record.reclustered = self.follow_drift(rows, rng)
            return
        clusters = cluster_clients(
            state, settings, self.run.rng("cluster", server_round)
        )
        self.state.join(newcomers, clusters)
        state.models = state.models * (int(clusters.max()) + 1)
        set_centres(state)
        self.measure_heterogeneity()

    def plan_evaluate(self, server_round: int, test: bool) -> Plan:
        """Ask every client whether its representation changed, even without a test."""
        state = self.state
        rows = zip(
            state.clients, state.clusters.tolist(), state.representations, strict=True
        )
        tasks = [Task(c, (k,) if test else (), {HELD: digest(r)}) for c, k, r in rows]
        return Plan(tasks, state.models if test else [], self.request.to_config())

    def absorb_evaluate(self, server_round: int, results: Results) -> None:
        """Handle the drift of clients that report it: line 4, Algorithm 2."""
        state = self.state
        record = self.run.record
        reports = [result for result in results if result.report is not None]
        if self.settings.reporters == "participants":
            chosen = self.run.participants.strata
            reports = [result for result in reports if result.client in chosen]
        record.drifted = len(reports)
        record.moved = 0
        # It is true already if newcomers led to a re-clustering.
        record.reclustered = bool(record.reclustered)
        self.learn_threshold(drifted=bool(reports))
        drifted = self.state.rows(result.client for result in reports)
        state.reports[drifted] += 1
        record.measures |= self.settings.privacy.spent(state.reports)
        if not reports:
            return
        state.representations[drifted], state.counts[drifted] = DriftReport.stack(
            reports
        )
        rng = self.run.rng("recluster", server_round)
        record.moved, reclustered = self.follow_drift(drifted, rng)
        record.reclustered |= reclustered

    def describe(self) -> Description:
        """Return what is known of the clusters from the latest representations."""
        state = self.state
        measure = partial(state.own_distances, self.settings.distance)
        return Description(heterogeneity=state.heterogeneity, centre_distances=measure)

    def follow_drift(self, drifted: IntArray, rng: Generator) -> tuple[int, bool]:
        """Move drifted clients; re-cluster all if the trigger fires: Algorithm 2.

        The state has the latest representations already. Returns how many clients
        moved, and whether all were re-clustered.
        """
        state = self.state
        settings = self.settings
        points = state.representations
        old = state.clusters
        centres = state.centres
        distance = settings.distance
        if isinstance(settings.trigger, PairwiseTrigger):
            self.run.record.measures["delta"] = settings.trigger.current(state)
        # Lines 1 and 2, all centres frozen, and line 3.
        state.clusters = move_drifted(drifted, points, old, centres, distance)
        moved = int(np.count_nonzero(state.clusters != old))
        state.centres = recompute_centres(points, state.clusters, centres)
        # Lines 4 and 5. The pairwise trigger also adapts its Delta.
        learning = settings.threshold_learning
        threshold = learning.in_force(settings.threshold, state.trials)
        parts = settings.representation.parts(self.classes)
        event = DriftEvent(centres, threshold, distance, parts)
        fires = settings.trigger.fires(state, event)
        if fires:
            # Lines 6 to 10: new models are means of the members' models.
            state.recluster(cluster_clients(state, settings, rng))
            set_centres(state)
        self.measure_heterogeneity()
        return moved, fires

    def learn_threshold(self, drifted: bool) -> None:
        """Learn the threshold from this round's accuracy and drift (Appendix F.1)."""
        learning = self.settings.threshold_learning
        configured = self.settings.threshold
        if not isinstance(learning, LearnedThreshold):
            return
        state = self.state
        record = self.run.record
        rng = self.run.rng("dunnett", record.round)
        trials = learning.after_round(state.trials, record, drifted, configured, rng)
        record.measures["threshold"] = learning.in_force(configured, trials)
        state.trials = trials

    def measure_heterogeneity(self) -> None:
        """Save the mean client distance within clusters (section 2.1)."""
        state = self.state
        distance = self.settings.distance
        points = state.representations
        rng = self.run.rng("heterogeneity", 0)
        found = mean_client_distance(points, state.clusters, distance, rng)
        state.heterogeneity = found
