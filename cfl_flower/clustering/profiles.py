"""Profiles of clients' data, of FLUX and FEROMA: moments of projected features.

A profile has G = 2 (L + 1) groups of z numbers: the mean and the standard deviation of
all samples, which need no labels; then L means, and L deviations, of each label's own.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from cfl_flower.clustering.algorithms import number_by_appearance
from cfl_flower.seeding import one_thread
from cfl_flower.types import FloatArray, IntArray, Vector

UNKNOWN = -1.0
"""Mark for the moments of a label with fewer than two samples."""

LABEL_FREE = 2
"""Groups at the start of a profile that need no labels."""


def random_projection(width: int, z: int, rng: Generator) -> Vector:
    """Return z orthonormal directions of ``width`` features, shape (width, z).

    Of fewer features than z, the directions that there are not are zero.
    """
    drawn = rng.normal(size=(width, z))
    directions, _ = np.linalg.qr(drawn)
    lacking = z - directions.shape[1]
    return np.pad(directions, ((0, 0), (0, lacking))).astype(np.float32)


def label_free_profile(points: FloatArray) -> Vector:
    """Return the mean and the deviation of n projected samples, (n, z), as (2 z,)."""
    if len(points) == 0:
        return np.full(LABEL_FREE * points.shape[1], UNKNOWN, np.float32)
    moments = [points.mean(axis=0), points.std(axis=0)]
    return np.concatenate(moments).astype(np.float32)


def full_profile(points: FloatArray, labels: IntArray, classes: int) -> Vector:
    """Return the whole profile of n projected samples, shape (G z,).

    ``points`` have shape (n, z), ``labels`` from 0 to L - 1 shape (n,).
    """
    means = np.full((classes, points.shape[1]), UNKNOWN, np.float32)
    deviations = means.copy()
    for label in range(classes):
        own = points[labels == label]
        if len(own) > 1:
            means[label] = own.mean(axis=0)
            deviations[label] = own.std(axis=0)
    parts = [label_free_profile(points), means.ravel(), deviations.ravel()]
    return np.concatenate(parts)


def group_ranges(profiles: FloatArray, groups: int) -> FloatArray:
    """Return the range of each group of numbers over n profiles, shape (G,).

    Dividing by them is min-max scaling of each group but for its offset, which no
    distance has. ``profiles`` have shape (n, G z). A range of 0 counts as 1.
    """
    grouped = profiles.astype(np.float64).reshape(len(profiles), groups, -1)
    ranges: FloatArray = np.ptp(grouped, axis=(0, 2))
    return np.where(ranges > 0, ranges, 1.0)


def scaled(profiles: FloatArray, ranges: FloatArray) -> FloatArray:
    """Return profiles, (n, G z), with each group divided by its range, (G,)."""
    return profiles / np.repeat(ranges, profiles.shape[1] // len(ranges))


def profile_distances(
    profiles: FloatArray, others: FloatArray, ranges: FloatArray
) -> FloatArray:
    """Return the distances of scaled profiles, (n, G z), from others, (m, G z): (n, m).

    With the first ranges alone, the profiles are compared by their first groups, which
    need no labels if they are `LABEL_FREE` many.
    """
    from scipy.spatial.distance import cdist

    return cdist(scaled(profiles, ranges), scaled(others, ranges))


def elbow(values: FloatArray) -> int:
    """Return the place of the elbow of n ascending values, the last one without any.

    Kneedle (Satopaa et al., 2011), offline, with a sensitivity of 1, for an increasing
    convex curve: it is turned by half a circle, so that the search is from its end. A
    fall by just the threshold counts: where two values tie, the package `kneed`, which
    FLUX's code calls, leaves it to rounding.

    Examples
    --------
    >>> elbow(np.array([1.0, 1.0, 1.1, 1.2, 5.0, 9.0]))
    3
    """
    last = len(values) - 1
    span = values[-1] - values[0]
    if span == 0:
        return last
    fallen = 1 - (values - values[0]) / span
    along = np.arange(len(values)) / last
    height = fallen[::-1] - along
    before = np.append(height[:1], height[:-1])
    after = np.append(height[1:], height[-1:])
    peaks = (height >= before) & (height >= after)
    troughs = (height <= before) & (height <= after)
    peak: int | None = None
    for place in range(last):
        if peaks[place]:
            peak = place
        if troughs[place]:
            peak = None
        if peak is not None and height[peak] - height[place + 1] > (1 - 1e-9) / last:
            return last - peak
    return last


def adaptive_clusters(points: FloatArray) -> IntArray:
    """Return the cluster of each of n scaled profiles, (n, P), by adaptive DBSCAN.

    Epsilon is the elbow of the distances from the nearest other, in ascending order; a
    pair makes a cluster. Who is in none is one of its own.
    """
    from scipy.spatial.distance import cdist
    from sklearn.cluster import DBSCAN

    if len(points) == 1:
        return np.zeros(1, np.int64)
    gaps = cdist(points, points)
    np.fill_diagonal(gaps, np.inf)
    nearest = np.sort(gaps.min(axis=1))
    eps = max(float(nearest[elbow(nearest)]), np.finfo(float).tiny)
    np.fill_diagonal(gaps, 0)
    with one_thread():
        found = DBSCAN(eps=eps, min_samples=2, metric="precomputed").fit(gaps)
    labels = found.labels_.astype(np.int64)
    alone = labels < 0
    labels[alone] = labels.max() + 1 + np.arange(alone.sum())
    return number_by_appearance(labels)


def matching_shares(gaps: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the share of each of m models in each of n clients' starts, (n, m).

    A share is in proportion to a model's weight, shape (m,), over the distance of its
    profile from the client's, (n, m), to which FEROMA's code adds 1e-8.

    Examples
    --------
    >>> matching_shares(np.array([[1.0, 3.0]]), np.array([1.0, 1.0])).round(3).tolist()
    [[0.75, 0.25]]
    """
    raw = weights / (gaps + 1e-8)
    return raw / raw.sum(axis=1, keepdims=True)
