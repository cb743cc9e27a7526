"""Moves of drifted clients, centres, and the trigger of re-clustering.

Li et al., "Fielding: Clustered Federated Learning with Data Drift", Algorithm 2 and
Appendix F. A representation is a row of L numbers, a centre the mean of a cluster's.
"""

from __future__ import annotations

import numpy as np

from cfl_flower.clustering.algorithms import (
    cluster_centres,
    nearest_centre,
    trimmed_centres,
)
from cfl_flower.clustering.representations import Distance, distances
from cfl_flower.types import FloatArray, IntArray


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
    moved[drifted] = nearest_centre(representations[drifted], centres, distance)
    return moved


def find_centres(
    representations: FloatArray, clusters: IntArray, count: int, trim: float = 0.0
) -> FloatArray:
    """Return the mean or trimmed mean of each cluster's members; NaN without members.

    The trimmed mean of vectors without negative numbers is scaled to the mean's sum, so
    that the centre of histograms is a histogram. Representations have shape (n, L).
    """
    means = cluster_centres(representations, clusters, count)
    if not trim:
        return means
    trimmed = trimmed_centres(representations, clusters, count, trim)
    sums = trimmed.sum(axis=1, keepdims=True)
    shares = (representations >= 0).all()
    # Where no label is held by enough members the trimmed mean is 0.
    scaled = trimmed * means.sum(axis=1, keepdims=True) / np.where(sums, sums, 1)
    return np.where(sums == 0, means, scaled) if shares else trimmed


def recompute_centres(
    representations: FloatArray,
    clusters: IntArray,
    centres: FloatArray,
    trim: float = 0.0,
) -> FloatArray:
    """Return the mean of each cluster's members: Algorithm 2, line 3.

    An empty cluster keeps its centre.
    """
    fresh = find_centres(representations, clusters, len(centres), trim)
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
    return 2 * delta if consecutive >= 2 else max(step, delta - step)


def own_centre_distances(
    representations: FloatArray,
    clusters: IntArray,
    centres: FloatArray,
    distance: Distance,
) -> FloatArray:
    """Return the distance of each client to its cluster's centre, shape (n,)."""
    gaps = np.zeros(len(clusters))
    for cluster in np.unique(clusters):
        members = np.flatnonzero(clusters == cluster)
        points = representations[members]
        centre = centres[[cluster]]
        gaps[members] = distances(points, centre, distance)[:, 0]
    return gaps
