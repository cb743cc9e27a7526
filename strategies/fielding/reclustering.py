"""What Fielding's server remembers, centres and moves, and the re-clustering trigger.

Li et al., "Fielding: Clustered Federated Learning with Data Drift", Algorithm 2 and
Appendix F. A representation is a row of L numbers, a centre the mean of a cluster's.
`strategy/trigger`: a centre moved far (Algorithm 2, lines 4 and 5), or a cluster became
wide (Algorithm 4, line 9, with the Delta of Appendix F.2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, NamedTuple, TypeAlias

import numpy as np

from cfl_flower.clustering.algorithms import (
    cluster_centres,
    nearest_centre,
    number_by_appearance,
)
from cfl_flower.clustering.representations import (
    Distance,
    distances,
    largest_pairwise_distance,
)
from cfl_flower.settings import Positive, settings
from cfl_flower.state import ClusteredState, no_clusters
from cfl_flower.types import FloatArray, IntArray, Vector
from strategies.fielding.threshold import Trials


def move_drifted(
    drifted: IntArray,
    representations: FloatArray,
    clusters: IntArray,
    centres: FloatArray,
    distance: Distance,
) -> IntArray:
    """Assign each drifted client to the nearest centre: Algorithm 2, lines 1 and 2.

    The centres stay frozen (section 2.2), so that the order of clients has no effect.
    ``drifted`` are rows of the n representations; the centres have shape (K, L).
    """
    moved = clusters.copy()
    # Algorithm 2, lines 1 and 2.
    moved[drifted] = nearest_centre(representations[drifted], centres, distance)
    return moved


def recompute_centres(
    representations: FloatArray, clusters: IntArray, centres: FloatArray
) -> FloatArray:
    """Return the mean of each cluster's members: Algorithm 2, line 3.

    An empty cluster keeps its centre.
    """
    fresh = cluster_centres(representations, clusters, len(centres))
    # Algorithm 2, line 3.
    return np.where(np.isnan(fresh), centres, fresh)


def cluster_without_single(
    points: FloatArray, choose: Callable[[FloatArray], IntArray]
) -> IntArray:
    """Cluster points, (n, L), again without those that are clusters by themselves.

    One that is far from all makes two clusters, of itself and of all others, whatever
    groups these have. Up to a fifth of all keep a cluster of their own.
    """
    count = len(points)
    rest = np.arange(count)
    while True:
        clusters = choose(points[rest])
        several = np.bincount(clusters)[clusters] > 1
        alone = count - np.count_nonzero(several)
        if several.all() or alone > count // 5:
            break
        rest = rest[several]
    found = count + np.arange(count)
    found[rest] = clusters
    return number_by_appearance(found)


def mean_centre_distance(centres: FloatArray, distance: Distance) -> float:
    """Return theta, the mean distance over pairs of centres: Algorithm 2, line 4.

    0 for a single centre.
    """
    count = len(centres)
    if count < 2:
        return 0.0
    return float(distances(centres, centres, distance).sum()) / (count * (count - 1))


def largest_shift(old: FloatArray, new: FloatArray, distance: Distance) -> float:
    """Return the largest distance that a centre has moved."""
    return float(np.diagonal(distances(old, new, distance)).max())


def needs_reclustering(shift: float, theta: float, threshold: float) -> bool:
    """Return whether a shift triggers global re-clustering: Algorithm 2, line 5."""
    return shift > 0 and shift >= threshold * theta


def adapt_delta(delta: float, step: float, consecutive: int) -> float:
    """Return Delta after a drift event: Appendix F.2.

    ``step`` is c, which Delta never goes below; ``consecutive`` counts the events in a
    row that led to re-clustering, this one included.
    """
    # Appendix F.2; the paper prints min(c, Delta - c), which is 0 at once.
    return 2 * delta if consecutive >= 2 else max(step, delta - step)


@dataclass
class FieldingState(ClusteredState):
    """Fielding's state; L is the length of a representation."""

    representations: FloatArray = field(default_factory=partial(np.zeros, (0, 0)))
    """The latest representation of each client, shape (n, L)."""
    counts: IntArray = field(default_factory=no_clusters)
    """The number of samples behind it, shape (n,)."""
    reports: IntArray = field(default_factory=no_clusters)
    """The number of each client's reports so far, shape (n,)."""
    centres: FloatArray = field(default_factory=partial(np.zeros, (0, 0)))
    """The centre of each cluster, shape (K, L)."""
    heterogeneity: float | None = None
    """The mean client distance, as of the last change of clusters or reports."""
    delta: float | None = None
    """Delta of Appendix F.2; None before the first drift event."""
    consecutive: int = 0
    """Drift events in a row that led to re-clustering (Appendix F.2)."""
    trials: Trials = field(default_factory=Trials)
    """The trials of thresholds so far (Appendix F.1)."""
    shared: list[Vector] = field(default_factory=list)
    """The shared model that represents data, if one does."""

    def own_distances(self, distance: Distance) -> FloatArray:
        """Return the distance of each client to its cluster's centre, shape (n,)."""
        gaps = distances(self.representations, self.centres, distance)
        return gaps[np.arange(len(self.clusters)), self.clusters]

    def places(self) -> dict[str, FloatArray]:
        """Return the centres, and the shared model if there is one."""
        found = {"centres": self.centres}
        return {**found, "shared": self.shared[0]} if self.shared else found


class DriftEvent(NamedTuple):
    """A drift as triggers see it, after the drifted clients have moved."""

    before: FloatArray
    """The centres until then, (K, L)."""
    threshold: float
    """tau / theta, the threshold in force."""
    distance: Distance
    """D, between representations."""
    parts: Sequence[slice]
    """The parts of a representation, any of which may have shifted."""


@settings("strategy.trigger")
class CentreTrigger:
    """A centre moved by at least `threshold` times the mean distance of centres."""

    name: ClassVar[str] = "centre"

    def fires(self, state: FieldingState, event: DriftEvent) -> bool:
        """Return whether a centre shifted far: Algorithm 2, lines 4 and 5."""
        members = state.sizes > 0
        for part in event.parts:
            centres = state.centres[:, part]
            # Line 4: theta, over the clusters that have members.
            theta = mean_centre_distance(centres[members], event.distance)
            shift = largest_shift(event.before[:, part], centres, event.distance)
            # Line 5.
            if needs_reclustering(shift, theta, event.threshold):
                return True
        return False


@settings("strategy.trigger")
class PairwiseTrigger:
    """Two clients of one cluster are farther apart than Delta, which adapts itself."""

    name: ClassVar[str] = "pairwise"

    delta: Positive = 0.1
    """c of Appendix F.2, where Delta starts."""

    def fires(self, state: FieldingState, event: DriftEvent) -> bool:
        """Return whether the farthest pair exceeds Delta; adapt Delta in the state.

        Centres and the threshold are not used.
        """
        delta = self.current(state)
        points = state.representations
        # Algorithm 4, line 9.
        widest = largest_pairwise_distance(points, state.clusters, event.distance)
        wide = widest > delta
        state.consecutive = state.consecutive + 1 if wide else 0
        state.delta = adapt_delta(delta, self.delta, state.consecutive)
        return wide

    def current(self, state: FieldingState) -> float:
        """Return Delta as it is before a drift event."""
        return self.delta if state.delta is None else state.delta


Trigger: TypeAlias = CentreTrigger | PairwiseTrigger
