"""Fielding: per-client moves plus selective global re-clustering.

Li et al., "Fielding: Clustered Federated Learning with Data Drift" (Algorithms 1 to 3).
Each round: share M participants over the K clusters -> train -> average per cluster ->
drifted clients report their label histogram -> each moves to the nearest centre, all
centres frozen -> centres are recomputed -> if one moved by at least theta/3, all
clients are clustered anew and the new models are means of the members' old models.

Server keeps: the latest representation of every client (n x L floats) and its number of
samples. Leaves the device: the model of a participant (d floats); the histogram
(L floats) of a client whose data changed, whether it takes part or not; instead of it
or beside it the mean embedding of its inputs (D floats) or the gradient of its loss at
a shared model (p floats, or a sketch), see `clients.fielding`.

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
* Above 10,000 clients k-means is Sculley's mini-batch one, and silhouettes are those of
  5,000 clients. The mean client distance is over 500 members of a larger cluster. The
  pairwise trigger compares, in a cluster of more than 1,000, the 32 farthest from the
  centre with all: a lower bound of the largest distance.
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
* Representations by a shared model (Appendix E): the run's network, pre-trained by the
  server on 200 samples of each class, where the paper has a ResNet-18 and 300 epochs.
  Gradients and embeddings have no test against chance: clients are one cluster if the
  best silhouette is below `least_silhouette`.
* `combined` is the paper's proposal to combine representations, which it does not
  describe: histogram and normalised gradient side by side, so that squared L2 adds up
  both distances (L1 is nearly the gradient's alone, where that is long); a client
  reports when either part changed by more than it tolerates. Shift and theta are those
  of each part, and either leads to re-clustering: over both together the distances of
  histograms make theta too large for a gradient's shift ever to reach.
* `trigger: pairwise` is Algorithm 4's condition with Appendix F.2's Delta. There
  "min(c, Delta - c)" gives 0 at once: max(c, Delta - c). K-center clustering, which is
  for the proof, stays k-means, as in the paper's experiment.
* `learning_rounds` is F.1's proposal of a learnable tau, of which the paper says no
  more: each of its five thresholds, and the configured one, decides `learning_events`
  drifts, and is judged by the accuracy of so many rounds after them. One takes the
  place of the configured threshold if it is better by more than chance
  (`strategies.fielding_threshold`); `relearn_every` rounds later they are tried anew.
* Beyond the paper: `privacy` adds noise to reported label histograms
  (`cfl_flower.client.privacy`), whose variance the test against chance then allows for;
  `robust` takes trimmed means for centres and puts the clusters together that have
  fewer than `least_members`, so that forged representations neither move centres nor
  open clusters.
* An iteration (drift event) is a round here: without reports a round changes nothing.
* tau = 0 (Appendix F.1) re-clusters whenever a centre moved, not at every report.
* FedScale asks 1.3 M clients in each round and keeps the first M; here as many are
  asked as are wanted, unless `devices.over_commitment` says otherwise.
* The paper trains all methods with FedProx, batches of 20 and 20 local steps; the
  default here is plain SGD (`strategy.local`, the same for every method).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cfl_flower.client.drift_report import HELD, DriftReport, ReportRequest
from cfl_flower.client.privacy import LabelNoise
from cfl_flower.clustering.algorithms import (
    KMeansScan,
    choose_clusters,
    mixing_matrix,
    nearest_centre,
    put_stragglers_together,
)
from cfl_flower.clustering.centres import (
    adapt_delta,
    find_centres,
    largest_shift,
    mean_centre_distance,
    move_drifted,
    needs_reclustering,
    recompute_centres,
)
from cfl_flower.clustering.representations import (
    METRICS,
    Distance,
    chance_explains,
    check_histogram,
    digest,
    distances,
    largest_pairwise_distance,
    mean_client_distance,
)
from cfl_flower.communication.results import Results
from cfl_flower.learning.aggregation import mix_models
from cfl_flower.models import split_module
from cfl_flower.settings import require, require_fraction, require_one_of
from cfl_flower.state import ClusteredState, Sampling, Weighting
from cfl_flower.types import (
    ClientId,
    FloatArray,
    IntArray,
    Plan,
    Result,
    Task,
    Vector,
)
from strategies.base import (
    ClusteredStrategy,
    Description,
    StrategySettings,
    Supports,
    no_clusters,
)
from strategies.fielding_shared_model import SharedModel
from strategies.fielding_threshold import Trials, best_candidate, candidates, turn

REPRESENTATIONS = ("label_histogram", "embedding", "gradient", "combined")


@dataclass(frozen=True)
class FieldingSettings(StrategySettings):
    """Fielding's settings.

    Attributes
    ----------
    representation : {"label_histogram", "embedding", "gradient", "combined"}
        What clients tell about their data; combined: histogram and gradient.
    shared : SharedModel
        What embeddings and gradients are made by.
    sketch : int
        Numbers in a gradient's sketch; 0 for the whole gradient.
    distance : {"l1", "js", "l2", "cosine"}
        D, between representations; ``js`` is for label histograms, and a combined
        representation takes ``l1`` or ``l2``.
    trigger : {"centre", "pairwise"}
        What leads to global re-clustering: a centre's shift, or two clients of one
        cluster farther apart than Delta.
    threshold : float
        tau / theta, the shift of a centre that triggers global re-clustering.
    delta : float
        c of Appendix F.2, where Delta starts.
    learning_rounds : int
        Tested rounds after a drift by which a threshold is judged; 0: `threshold`
        stays.
    learning_events : int
        Drifts on which each threshold is tried.
    relearn_every : int
        Rounds until the thresholds are tried again; 0: never.
    centre_reference : {"event", "recluster"}
        What a centre's shift is measured from.
    tolerance : float
        The change of its representation, in D, up to which a client keeps silent; in a
        combined one the histogram's L1 change.
    gradient_tolerance : float
        The same for a combined one's gradient, as 1 - cos.
    significance : float
        Probability of clustering clients that chance alone tells apart, by labels.
    least_silhouette : float
        Below it there are no clusters, by embeddings and gradients.
    scan : KMeansScan
        How clients are clustered from scratch.
    privacy : LabelNoise
        Noise on reported label histograms.
    robust : bool
        Whether clusters are guarded against forged representations.
    trim : float
        Share of a cluster's members that has no say in a coordinate of its centre, at
        either end, if robust.
    least_members : int
        Clusters of fewer are put together, if robust.
    """

    weighting: Weighting = "plain"
    sampling: Sampling = "clusters"
    representation: str = "label_histogram"
    shared: SharedModel = field(default_factory=SharedModel)
    sketch: int = 0
    distance: str = "l1"
    trigger: str = "centre"
    threshold: float = 1 / 3
    delta: float = 0.1
    learning_rounds: int = 0
    learning_events: int = 2
    relearn_every: int = 0
    centre_reference: str = "event"
    tolerance: float = 0.0
    gradient_tolerance: float = 0.0
    significance: float = 0.001
    least_silhouette: float = 0.1
    scan: KMeansScan = field(default_factory=KMeansScan)
    privacy: LabelNoise = field(default_factory=LabelNoise)
    robust: bool = False
    trim: float = 0.25
    least_members: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, allowed in (
            ("representation", REPRESENTATIONS),
            ("distance", tuple(METRICS)),
            ("trigger", ("centre", "pairwise")),
            ("centre_reference", ("event", "recluster")),
        ):
            require_one_of(f"strategy.{name}", getattr(self, name), allowed)
        for name in (
            *("threshold", "tolerance", "gradient_tolerance", "sketch"),
            *("learning_rounds", "relearn_every"),
        ):
            value = getattr(self, name)
            require(value >= 0, f"strategy.{name}", value, "a number of at least 0")
        require(self.delta > 0, "strategy.delta", self.delta, "a number above 0")
        require_fraction("strategy.significance", self.significance)
        require_fraction("strategy.least_silhouette", self.least_silhouette)
        what = "a number from 0 to below 0.5"
        require(0 <= self.trim < 0.5, "strategy.trim", self.trim, what)
        ok, what = self.least_members >= 1, "a whole number of at least 1"
        require(ok, "strategy.least_members", self.least_members, what)
        self._check_representation()
        # What one drift does cannot be told from chance.
        ok, what = self.learning_events >= 2, "a whole number of at least 2"
        require(ok, "strategy.learning_events", self.learning_events, what)
        # One forged report is enough to make a cluster wide.
        ok = not (self.robust and self.trigger == "pairwise")
        what = "centre with robust=true: any forged report would re-cluster all clients"
        require(ok, "strategy.trigger", self.trigger, what)

    def _check_representation(self) -> None:
        by_labels = self.representation == "label_histogram"
        require(
            by_labels or self.shared.given,
            "strategy.representation",
            self.representation,
            "label_histogram, or give a shared model by strategy.shared.path or "
            "strategy.shared.samples",
        )
        allowed = {"label_histogram": tuple(METRICS), "combined": ("l1", "l2")}
        metrics = allowed.get(self.representation, ("l1", "l2", "cosine"))
        ok = self.distance in metrics
        what = f"{' or '.join(metrics)} with representation={self.representation}"
        require(ok, "strategy.distance", self.distance, what)
        # Nothing bounds what one sample does to a gradient or an embedding.
        what = "null, or representation=label_histogram, which alone noise protects"
        ok = by_labels or not self.privacy.on
        require(ok, "strategy.privacy.epsilon", self.privacy.epsilon, what)


@dataclass
class FieldingState(ClusteredState):
    """Fielding's state.

    Attributes
    ----------
    representations : array of shape (n, L)
        The latest representation of each client.
    counts : int array of shape (n,)
        The number of samples behind it.
    reports : int array of shape (n,)
        How often each client has told it.
    centres : array of shape (K, L)
    reference : array of shape (K, L)
        The centres at the last re-clustering.
    delta : float
        Delta of Appendix F.2.
    consecutive : int
        Drift events in a row that led to re-clustering.
    trials : Trials
        What was seen of the thresholds.
    """

    representations: FloatArray
    counts: IntArray
    reports: IntArray
    centres: FloatArray
    reference: FloatArray
    delta: float
    consecutive: int
    trials: Trials

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.trials, dict):
            self.trials = Trials(**self.trials)


class Fielding(ClusteredStrategy):
    """Algorithm 1, with the drift handling of Algorithm 2."""

    Settings = FieldingSettings
    State = FieldingState
    supports = Supports(centres=True)

    def initial_state(self) -> Any:
        """Return the state before any client is known."""
        self.shared, self.width = self._make_shared(), self._count_width()
        no_rows = np.zeros((0, self.width), np.float32)
        no_centres = np.zeros((0, self.width))
        nobody, model = no_clusters(), [self.initial_model()]
        return FieldingState(
            [],
            nobody,
            model,
            no_rows,
            nobody,
            nobody,
            no_centres,
            no_centres,
            self.settings.delta,
            0,
            Trials(),
        )

    def _make_shared(self) -> list[Vector]:
        """Return the shared model, if the representation needs one.

        Raises
        ------
        ConfigError
        """
        settings = self.settings
        if settings.representation == "label_histogram":
            return []
        require(
            self.timeline is not None or settings.shared.path is not None,
            "strategy.shared.path",
            "null",
            "a file: there are no data here to pre-train a shared model on",
        )
        return [settings.shared.make(self.config)]

    def _count_width(self) -> int:
        """Return the length of a representation."""
        kind, classes = self.settings.representation, self.config.dataset.classes
        if kind == "label_histogram":
            return int(classes)
        network = self.hollow_network()
        if kind == "embedding":
            return split_module(network).width
        numbers = sum(each.numel() for each in network.parameters())
        gradient = self.settings.sketch or numbers
        return gradient + (classes if kind == "combined" else 0)

    @property
    def request(self) -> ReportRequest:
        """What clients are asked: their representation, if it changed."""
        settings = self.settings
        tolerance = max(settings.tolerance, settings.gradient_tolerance)
        shared = digest(self.shared[0]) if self.shared else ""
        return ReportRequest(settings.representation, tolerance, shared)

    def hello(self, clients: Sequence[ClientId]) -> Plan:
        """Ask for first representations; the shared model comes along, to be kept."""
        models = tuple(range(len(self.shared)))
        tasks = [Task(client, models) for client in clients]
        return Plan(tasks, self.shared, self.request.to_config())

    def read_result(self, phase: str, result: Result) -> Result:
        """Read a reported representation, which the hello must bring."""
        if phase == "train" or (
            phase == "evaluate" and "representation" not in result.metrics
        ):
            return result
        kind = self.settings.representation.replace("_", " ")
        report = DriftReport.from_metrics(result.metrics, self.width, kind)
        if self.settings.representation in ("label_histogram", "combined"):
            check_histogram(report.representation[: self.config.dataset.classes])
        return replace(result, report=report)

    def welcome(self, round: int, newcomers: list[Result]) -> None:
        """Cluster the first clients (Algorithm 3); later ones join the nearest."""
        state = self.state
        points, counts = stack_reports(newcomers)
        first = not state.clients
        state.representations = np.vstack([state.representations, points])
        state.counts = np.append(state.counts, counts)
        state.reports = np.append(state.reports, np.ones(len(counts), np.int64))
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
            Task(client, (cluster,) if test else (), {HELD: digest(representation)})
            for client, cluster, representation in zip(
                state.clients,
                state.clusters.tolist(),
                state.representations,
                strict=True,
            )
        ]
        return Plan(tasks, state.models if test else [], self.request.to_config())

    def absorb_evaluate(self, round: int, results: Results) -> None:
        """Move the clients that report drift, then look at the centres: Algorithm 2."""
        state, record = self.state, self.record
        reports = [result for result in results if result.report is not None]
        record.drifted, record.moved = len(reports), 0
        record.reclustered = bool(record.reclustered)
        self.learn_threshold(round, drifted=bool(reports))
        drifted = self.rows(result.client for result in reports)
        state.reports[drifted] += 1
        self.measure_privacy()
        if not reports:
            return
        state.representations[drifted], state.counts[drifted] = stack_reports(reports)
        before = state.clusters
        state.clusters = move_drifted(
            drifted, state.representations, before, state.centres, self.distance
        )
        record.moved = int(np.count_nonzero(state.clusters != before))
        record.reclustered |= self.adjust(self.rng("recluster", round))

    def measure_privacy(self) -> None:
        """Note the privacy lost so far by whoever reported most: reports compose."""
        privacy, most = self.settings.privacy, int(self.state.reports.max(initial=0))
        if privacy.on:
            self.record.measures["epsilon_spent"] = most * privacy.epsilon
        if privacy.on and privacy.noise == "gaussian":
            self.record.measures["delta_spent"] = most * privacy.delta

    def adjust(self, rng: np.random.Generator) -> bool:
        """Recompute the centres; if one moved far, cluster all clients from scratch."""
        state, settings = self.state, self.settings
        self._heterogeneity = None
        before = state.centres
        if settings.centre_reference == "recluster":
            before = state.reference
        state.centres = recompute_centres(
            state.representations, state.clusters, state.centres, self.trim
        )
        if settings.trigger == "pairwise":
            needed = self._too_wide()
        else:
            needed = any(self._shifted(before[:, part], part) for part in self.parts)
        if needed:
            self.recluster(rng)
        return needed

    def _shifted(self, before: FloatArray, part: slice) -> bool:
        """Compare how far centres moved with their distances, in one part."""
        state, distance = self.state, self.distance
        centres = state.centres[:, part]
        theta = mean_centre_distance(centres[state.sizes > 0], distance)
        shift = largest_shift(before, centres, distance)
        return needs_reclustering(shift, theta, self.threshold)

    @property
    def parts(self) -> tuple[slice, ...]:
        """Where each part of a representation is, which have each a test for drift."""
        if self.settings.representation != "combined":
            return (slice(None),)
        classes = self.config.dataset.classes
        return slice(0, classes), slice(classes, None)

    def _too_wide(self) -> bool:
        """Compare the farthest pair in a cluster with Delta, and adapt that."""
        state, metric = self.state, self.distance
        widest = largest_pairwise_distance(
            state.representations, state.clusters, metric
        )
        wide = bool(widest > state.delta)
        state.consecutive = state.consecutive + 1 if wide else 0
        self.record.measures["delta"] = state.delta
        state.delta = adapt_delta(state.delta, self.settings.delta, state.consecutive)
        return wide

    @property
    def threshold(self) -> float:
        """The fraction of theta in force: as configured, tried, or the best tried."""
        configured, trials = float(self.settings.threshold), self.state.trials
        if trials.before is not None:
            tried = candidates(configured)
            return tried[turn(len(trials.scores), len(tried))]
        return configured if trials.learned is None else trials.learned

    def learn_threshold(self, round: int, drifted: bool) -> None:
        """Take in a round's accuracy; try a threshold on the drift, if there is one."""
        settings, trials = self.settings, self.state.trials
        if not settings.learning_rounds:
            return
        if self.record.accuracy is not None:
            trials = trials.tested(self.record.accuracy, settings.learning_rounds)
        tried = candidates(settings.threshold)
        if trials.learned is None:
            if len(trials.scores) >= len(tried) * settings.learning_events:
                place = tried.index(settings.threshold), self.rng("dunnett", round)
                best = best_candidate(trials.scores, len(tried), *place)
                trials = replace(trials, learned=tried[best], since=round)
        elif 0 < settings.relearn_every <= round - trials.since:
            trials = Trials(latest=trials.latest)
        if drifted and trials.learned is None:
            trials = trials.drifted()
        self.state.trials = trials
        self.record.measures["threshold"] = self.threshold

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
        least = settings.least_silhouette
        if settings.representation == "label_histogram":
            least = -1.0
            noise = settings.privacy.variance
            if chance_explains(points, state.counts, settings.significance, noise):
                return np.zeros(len(points), np.int64)
        found = choose_clusters(points, self.distance, settings.scan, rng, least)
        if not settings.robust:
            return found
        fewest = settings.least_members
        return put_stragglers_together(points, found, fewest, self.distance)

    @property
    def trim(self) -> float:
        """The share of members without a say in a coordinate of a centre."""
        return float(self.settings.trim) if self.settings.robust else 0.0

    def describe(self) -> Description:
        """Return what the latest representations say of the clusters."""
        if self._heterogeneity is None:
            state, rng = self.state, self.rng("heterogeneity", 0)
            self._heterogeneity = mean_client_distance(
                state.representations, state.clusters, self.distance, rng
            )
        return Description(True, self._heterogeneity, self.centre_distances)

    def centre_distances(self) -> FloatArray:
        """Return the distance of each client to its cluster's centre."""
        state = self.state
        gaps = np.zeros(len(state.clients))
        for cluster in range(len(state.models)):
            members = np.flatnonzero(state.clusters == cluster)
            points, centre = state.representations[members], state.centres[[cluster]]
            gaps[members] = distances(points, centre, self.distance)[:, 0]
        return gaps

    _heterogeneity: float | None = None

    @property
    def distance(self) -> Distance:
        """D."""
        distance: Distance = self.settings.distance
        return distance

    def _set_centres(self) -> None:
        state = self.state
        state.centres = find_centres(
            state.representations, state.clusters, len(state.models), self.trim
        )
        state.reference = state.centres
        self._heterogeneity = None


def stack_reports(results: Sequence[Result]) -> tuple[FloatArray, IntArray]:
    """Return the reported representations, shape (m, L), and their samples, (m,)."""
    points = np.stack([result.report.representation for result in results])
    counts = [result.report.num_examples for result in results]
    return points, np.array(counts, np.int64)
