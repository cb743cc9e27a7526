"""FedCCFA: classifiers clustered class by class, features aligned with their anchors.

Chen et al., "Classifier Clustering and Feature Alignment for Federated Learning under
Distributed Concept Drift" (NeurIPS 2024; Algorithm 1, eq. 3 to 10). A participant
trains a balanced classifier, for clustering alone; its own classifier; and the
extractor, aligned with its anchors. The server averages extractors, clusters the
balanced classifiers of each class by MADC and DBSCAN, and gives the members of a
cluster the mean of their own classifiers of that class, and of their anchors.

Server keeps: the model, whose classifier phi(0) never changes; the distances and
clusters of the last round. Leaves the device: the extractor; the balanced and the own
classifier; the anchors (L * D floats); which classes it has, or with
`row_weighting=samples` how many samples of each (L floats).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from cfl_flower.clustering.algorithms import connected
from cfl_flower.clustering.similarity import cosine_matrix, madc
from cfl_flower.communication.results import Results
from cfl_flower.engine.method import Description, Disclosure
from cfl_flower.errors import ConfigError
from cfl_flower.learning.anchors import no_anchors, parse_counts, presence_config
from cfl_flower.privacy.clipping import capped_counts
from cfl_flower.seeding import one_thread
from cfl_flower.settings import Count, Natural, NonNegative, Positive, settings
from cfl_flower.types import ClientId, FloatArray, IntArray, Plan, Result
from strategies.families.decoupled import (
    AnchorState,
    DecoupledSettings,
    DecoupledStrategy,
)

log = logging.getLogger(__name__)

OF_ALIGNMENT = ("alignment_weight", "temperature", "start", "anchors")
"""Settings of the alignment of features."""


@settings("strategy")
class FedCCFASettings(DecoupledSettings):
    """FedCCFA's settings."""

    waits = "start"

    idle_unless = DecoupledSettings.idle_unless | {
        "gamma": "alignment_weight=none",
        **dict.fromkeys(OF_ALIGNMENT, "alignment=contrast"),
    }

    client: str = "clients.fedccfa.FedCCFAClient"
    balanced_steps: Count = 5
    """s, full-batch steps of the balanced classifier."""
    balanced_samples: Count = 5
    """Samples of each class in the batch of the balanced classifier."""
    clustering: Literal["balanced", "local", "oracle"] = "balanced"
    """Basis of the clustering: balanced classifiers, the clients' own, or the true
    concepts."""
    reach: Positive = 0.1
    """eps, the largest distance of neighbours in DBSCAN."""
    alignment: Literal["none", "contrast"] = "contrast"
    """No alignment, or FedFM's contrastive loss."""
    alignment_weight: NonNegative | None = None
    """Weight of the alignment, the same for everyone; null for H(P(Y)) / gamma."""
    gamma: Positive = 20.0
    """Divides the entropy of the labels to the weight of the alignment."""
    temperature: Positive = 0.1
    """tau of the contrastive loss."""
    start: Natural = 20
    """T_s, rounds before the alignment starts."""
    anchors: Literal["clustered", "global"] = "clustered"
    """Anchors are averaged within a class's clusters, or over all participants, whose
    mean goes to all those of the next round."""
    row_weighting: Literal["uniform", "samples"] = "uniform"
    """Weights of a cluster's members; ``samples`` reports label counts."""


@dataclass
class FedCCFAState(AnchorState):
    """FedCCFA's state; its anchors are used with `anchors=global` only."""

    clustered: list[ClientId] = field(default_factory=list)
    """The m clients whose classifiers were clustered last."""
    class_clusters: IntArray = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    """Their cluster in each class, shape (m, L); -1 without samples of it."""


def class_distances(rows: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the distances of clients' classifiers, class by class: eq. 4.

    ``rows``, each client's classifier of each class, have shape (m, L, D + 1);
    ``weights``, positive where a client has samples of a class, (m, L). The distances
    are float32, of shape (L, m, m), and NaN for pairs of which one has no samples.
    """
    count, classes = weights.shape
    gaps = np.full((classes, count, count), np.nan, np.float32)
    for label in range(classes):
        holders = np.flatnonzero(weights[:, label] > 0)
        if len(holders):
            block = np.ascontiguousarray(rows[holders, label], np.float32)
            # Eq. 4: the MADC of the cosines of their classifiers of the class.
            gaps[label][np.ix_(holders, holders)] = madc(cosine_matrix(list(block)))
    return gaps


def cluster_classes(gaps: FloatArray, reach: float) -> IntArray:
    """Cluster clients class by class: DBSCAN with min_samples = 1 and eps = ``reach``.

    From distances of shape (L, m, m) to clusters of shape (m, L), which are -1 where a
    client has no samples of a class.
    """
    clusters = np.full(gaps.shape[1::-1], -1, np.int64)
    for label, matrix in enumerate(gaps):
        holders = np.flatnonzero(~np.isnan(np.diagonal(matrix)))
        if len(holders):
            # Algorithm 1, line 18: DBSCAN.
            linked = connected(matrix[np.ix_(holders, holders)], reach)
            clusters[holders, label] = linked
    return clusters


def cluster_means(
    values: FloatArray, clusters: IntArray, weights: FloatArray
) -> FloatArray:
    """Return what each client gets of its clusters, float32: eq. 5 and 7.

    ``values``, classifiers or anchors class by class, have shape (m, L, k) as has what
    is returned, the mean over the members of a client's cluster or, where it is in
    none, its own value. Clusters and the members' ``weights`` have shape (m, L).
    """
    means = values.astype(np.float32)
    for label in range(values.shape[1]):
        members = np.flatnonzero(clusters[:, label] >= 0)
        if len(members) == 0:
            continue
        own = clusters[members, label]
        shares = np.zeros((own.max() + 1, len(members)))
        shares[own, np.arange(len(members))] = weights[members, label]
        shares /= shares.sum(axis=1, keepdims=True)
        with one_thread():
            # Eq. 5 and 7: the mean over the members of each one's cluster.
            means[members, label] = (shares @ values[members, label])[own]
    return means


class FedCCFA(DecoupledStrategy):
    """Algorithm 1, the server's part."""

    Settings = FedCCFASettings
    State = FedCCFAState
    # With sums of extractors alone, classifiers would show what masks are to hide.
    discloses = Disclosure(
        singly="clusters single participants' classifiers",
        uncovered="classifiers, mean representations and their classes",
    )

    def initial_state(self) -> Any:
        """Return the initial state; raise `ConfigError` without true concepts."""
        if self.settings.clustering == "oracle" and self.run.timeline is None:
            raise ConfigError(
                "strategy.clustering=oracle needs a simulated stream, whose concepts "
                "are known; use balanced on real devices"
            )
        participants = self.run.config.participants
        if participants < 3 and self.settings.clustering != "oracle":
            log.warning(
                "strategy=fedccfa with participants=%s: two are compared by their "
                "cosine distance, one is a cluster of its own; take at least 3",
                participants,
            )
        state = super().initial_state()
        state.class_clusters = np.zeros((0, self.split.classes), np.int64)
        state.anchors = no_anchors(self.split)
        return state

    @property
    def shares_anchors(self) -> bool:
        """Whether all participants are aligned with the same anchors."""
        return self.settings.anchors == "global" and "anchors" in self.parts

    @property
    def parts(self) -> dict[str, int]:
        """The arrays of a result and their lengths."""
        extractor, classifier = self.split.lengths
        found = {"extractor": extractor, "own": classifier}
        if self.settings.alignment != "none":
            found["anchors"] = self.split.classes * self.split.width
        if self.settings.clustering == "balanced":
            found["balanced"] = classifier
        return found

    def read_result(self, phase: str, result: Result) -> Result:
        """Read a participant's weight in each class, (L,); 0 without samples."""
        if phase != "train":
            return result
        counts = parse_counts(result.metrics.get("classes"), self.split.classes)
        weights: FloatArray = counts
        if self.settings.row_weighting == "uniform":
            weights = np.where(counts > 0, 1.0, 0.0)
        return replace(result, report=weights)

    def plan_train(self, server_round: int) -> Plan:
        """Send the extractor to the participants, and the anchors if all share them."""
        shared = [self.state.anchors.points.ravel()] if self.shares_anchors else []
        config = presence_config(self.state.anchors) if shared else {}
        sent = [self.extractor, *shared]
        plan = self.run.participants.send(server_round, sent, **config)
        return replace(plan, reply=tuple(self.parts.values()))

    def absorb_train(self, server_round: int, results: Results) -> None:
        """Average the extractors, then classifiers and anchors class by class."""
        # Algorithm 1, line 15.
        super().absorb_train(server_round, results)
        counts = np.stack([result.report for result in results])
        weights = capped_counts(counts, self.settings.weight_cap)
        self.state.clustered = [result.client for result in results]
        # Lines 16 to 18.
        self.cluster(server_round, results, weights)
        own = self._rows(results, "own")
        # Line 20, eq. 5.
        heads = cluster_means(own, self.state.class_clusters, weights)
        found = [[self.split.flatten(head)] for head in heads]
        if self.shares_anchors:
            cap = self.settings.weight_cap
            self.state.average(list(self._stack(results, "anchors")), counts, cap)
        elif "anchors" in self.parts:
            shape = (len(results), self.split.classes, self.split.width)
            points = self._stack(results, "anchors").reshape(shape)
            # Line 20, eq. 7.
            means = cluster_means(points, self.state.class_clusters, weights)
            for arrays, mean in zip(found, means, strict=True):
                arrays.append(mean.ravel())
        # Line 21.
        self.give_back(results, found)

    def cluster(
        self, server_round: int, results: Sequence[Result], weights: FloatArray
    ) -> None:
        """Cluster the participants class by class."""
        state = self.state
        settings = self.settings
        reach = settings.reach
        if settings.clustering == "oracle":
            assert self.run.timeline is not None
            clients = np.array(state.clustered, np.int64)
            truth = self.run.timeline.world(server_round).meanings[clients]
            apart = truth.T[:, :, None] != truth.T[:, None, :]
            held = weights.T > 0
            pairs = held[:, :, None] & held[:, None, :]
            gaps = np.where(pairs, apart, np.nan).astype(np.float32)
            reach = 0.5
        else:
            rows = self._rows(results, settings.clustering.replace("local", "own"))
            # Line 17, eq. 4.
            gaps = class_distances(rows, weights)
        # Line 18.
        state.class_clusters = cluster_classes(gaps, reach)
        found = state.class_clusters.max(axis=0) + 1
        self.run.record.measures["class_clusters"] = found.tolist()

    def describe(self) -> Description:
        """Return the clients whose classifiers were clustered last, with clusters."""
        by_class = self.state.clustered, self.state.class_clusters
        return replace(super().describe(), class_clusters=by_class)

    def _stack(self, results: Sequence[Result], name: str) -> FloatArray:
        place = list(self.parts).index(name)
        return np.stack([result.arrays[place] for result in results])

    def _rows(self, results: Sequence[Result], name: str) -> FloatArray:
        """Return the classifiers, class by class, shape (m, L, D + 1)."""
        return np.stack([self.split.rows(each) for each in self._stack(results, name)])
