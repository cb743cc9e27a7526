"""Clustering algorithms and the choice of K, as pure functions on arrays."""

from __future__ import annotations

from operator import attrgetter
from typing import Annotated

import numpy as np
from numpy.random import Generator
from pydantic import Field

from cfl_flower.clustering.representations import Distance, distances, pair_distances
from cfl_flower.seeding import one_thread
from cfl_flower.settings import Count, Fraction, require, settings
from cfl_flower.types import FloatArray, IntArray

EXACT = 10_000
"""Clients up to which k-means uses all points."""

SAMPLED = 5_000
"""Clients up to which silhouettes use all pairs, and as many in a sample of more."""


@settings("strategy.scan")
class KMeansScan:
    """How K is chosen and k-means is run."""

    smallest: Annotated[int, Field(ge=2)] = 2
    """The smallest K that is tried."""
    largest: int = 20
    """The largest K that is tried, capped at n - 1."""
    substantial: Fraction = 0.25
    """Silhouette up to which clusters are no substantial structure (Kaufman and
    Rousseeuw, 1990), so that the smallest K is taken; 0 for the K of the largest
    silhouette whatever it is, which is Algorithm 3."""
    restarts: Count = 10
    """Independent k-means++ seedings, of which the best inertia counts; fewer above 500
    clients (5,000 / n, at least 1), where one seeding is stable."""

    def __post_init__(self) -> None:
        low = self.smallest
        high = self.largest
        require(high >= low, "strategy.scan.largest", high, f"at least {low}")


def cluster_centres(points: FloatArray, labels: IntArray, count: int) -> FloatArray:
    """Return the mean of each cluster's points; NaN rows for empty clusters.

    ``points`` have shape (n, L), ``labels`` from 0 to ``count`` - 1 shape (n,).
    """
    from scipy.sparse import csr_array

    each = np.arange(len(labels))
    members = csr_array((np.ones(len(each)), (labels, each)), (count, len(each)))
    sizes = np.bincount(labels, minlength=count)
    with np.errstate(invalid="ignore"):
        result: FloatArray = (members @ points) / sizes[:, None]
    return result


def nearest_centre(
    points: FloatArray, centres: FloatArray, metric: Distance
) -> IntArray:
    """Return the nearest centre of each point, the lowest id on a tie.

    Centres of NaN are skipped.
    """
    absent = np.asarray(np.isnan(centres).any(axis=1))
    gaps = distances(points, np.where(absent[:, None], 0, centres), metric)
    gaps[:, absent] = np.inf
    return gaps.argmin(axis=1)


def mixing_matrix(old: IntArray, new: IntArray, old_count: int) -> FloatArray:
    """Return the share of each old cluster among the members of each new one.

    Fielding, Algorithm 2, line 10: the model of new cluster k is the mean over its
    members i of the model of i's old cluster. That is row k of this matrix, of shape
    (K_new, old_count), times the old models: no model is copied per client. Every new
    id from 0 to its maximum has members.

    Examples
    --------
    >>> mixing_matrix(np.array([0, 0, 1]), np.array([0, 1, 1]), 2)
    array([[1. , 0. ],
           [0.5, 0.5]])
    """
    counts = np.zeros((int(new.max()) + 1, old_count))
    np.add.at(counts, (new, old), 1)
    return counts / counts.sum(axis=1, keepdims=True)


def silhouettes(
    points: FloatArray, labelings: list[IntArray], metric: Distance
) -> list[float]:
    """Return the mean silhouette (Rousseeuw, 1987) of many clusterings of one set.

    ``points`` have shape (n, L), each of the labelings (n,). As scikit-learn's, which
    takes four times as long; with a single cluster it is -1.
    """
    from scipy.spatial.distance import squareform

    gaps = squareform(pair_distances(points, metric).astype(np.float32))
    return [_silhouette(gaps, labels) for labels in labelings]


def _silhouette(gaps: FloatArray, labels: IntArray) -> float:
    """Return the mean of (b - a) / max(a, b), which is 0 for a client on its own."""
    names, labels, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    if len(names) == 1:
        return -1.0
    each = np.arange(len(labels))
    own = sizes[labels]
    sums = gaps @ np.eye(len(names), dtype=np.float32)[labels]
    inside = sums[each, labels] / np.maximum(own - 1, 1)
    means = sums / sizes
    means[each, labels] = np.inf
    outside = means.min(axis=1)
    widest = np.maximum(inside, outside)
    scores = np.where(own > 1, outside - inside, 0) / np.where(widest > 0, widest, 1)
    return float(scores.mean())


def choose_clusters(
    points: FloatArray,
    metric: Distance,
    scan: KMeansScan,
    rng: Generator,
    least: float = -1.0,
) -> IntArray:
    """Cluster clients by k-means, with K chosen by the silhouette.

    Fielding, Algorithm 3, where the largest silhouette decides. Where there are no
    clusters silhouettes are low and flat, and the largest is one of many small clusters
    by chance: up to `KMeansScan.substantial` the smallest K is taken. K-means++
    minimises squared L2; the silhouette uses the representation's own distance.

    Clusters of points of shape (n, L) are numbered by first appearance, so that equal
    clusterings have equal ids. There is one if there are too few distinct points for
    two, or no silhouette reaches ``least``.
    """
    from sklearn import config_context

    distinct = len(np.unique(points, axis=0))
    largest = min(scan.largest, len(points) - 1, distinct)
    if largest < scan.smallest:
        return np.zeros(len(points), np.int64)
    # A fifth to a third of the time would go into checks of each fit's parameters.
    with one_thread(), config_context(skip_parameter_validation=True):
        labelings = _kmeans_for_each_k(points, scan, largest, rng)
        tested = labelings
        if len(points) > SAMPLED:
            some = np.sort(rng.choice(len(points), SAMPLED, replace=False))
            points = points[some]
            tested = [labels[some] for labels in labelings]
        scores = silhouettes(points, tested, metric)
    best = max(scores)
    if best < least:
        return np.zeros_like(labelings[0])
    return labelings[scores.index(best) if best > scan.substantial else 0]


def _kmeans_for_each_k(
    points: FloatArray, scan: KMeansScan, largest: int, rng: Generator
) -> list[IntArray]:
    """Return a k-means clustering for every K of the scan.

    The best of several; of more than `EXACT` clients one by mini-batches (Sculley,
    2010).
    """
    from sklearn.cluster import KMeans, MiniBatchKMeans, kmeans_plusplus

    many = len(points) > EXACT
    restarts = max(1, min(scan.restarts, 5000 // len(points)))
    # The first K seeds of a longer k-means++ seeding are a k-means++ seeding for K
    # (with scikit-learn's number of trials for the longer one).
    seedings = [
        kmeans_plusplus(points, largest, random_state=int(rng.integers(2**31)))[0]
        for _ in range(0 if many else restarts)
    ]

    def fit(k: int) -> IntArray:
        if many:
            state = int(rng.integers(2**31))
            options = {"n_init": 3, "batch_size": 4096, "random_state": state}
            fits = [MiniBatchKMeans(k, **options)]
        else:
            fits = [KMeans(k, init=seeds[:k], n_init=1) for seeds in seedings]
        best = min((each.fit(points) for each in fits), key=attrgetter("inertia_"))
        return number_by_appearance(best.labels_)

    return [fit(k) for k in range(scan.smallest, largest + 1)]


def kmeans(points: FloatArray, count: int, rng: Generator) -> IntArray:
    """Return the best of ten k-means++ clusterings into K clusters, shape (n,).

    Into fewer than K = ``count`` if there are fewer distinct points.
    """
    from sklearn.cluster import KMeans

    distinct = min(count, len(np.unique(points, axis=0)))
    state = int(rng.integers(2**31))
    with one_thread():
        fit = KMeans(distinct, n_init=10, random_state=state).fit(points)
    return fit.labels_.astype(np.int64)


def complete_linkage(gaps: FloatArray, count: int) -> IntArray:
    """Cluster by complete linkage: the distance of clusters is their farthest members'.

    Returns ``count`` clusters of the rows of distances of shape (n, n), or n if fewer.
    """
    from sklearn.cluster import AgglomerativeClustering

    if len(gaps) < 2:
        return np.zeros(len(gaps), np.int64)
    method = AgglomerativeClustering(
        min(count, len(gaps)), metric="precomputed", linkage="complete"
    )
    return method.fit(gaps).labels_.astype(np.int64)


def connected(gaps: FloatArray, reach: float) -> IntArray:
    """Cluster points that are linked by steps of at most ``reach``, eps.

    DBSCAN (Ester et al., 1996) with min_samples = 1, where nothing is noise. ``gaps``
    are symmetric distances, shape (n, n); clusters are numbered by first appearance.

    Examples
    --------
    >>> connected(np.abs(np.subtract.outer([0, 9, 1, 2], [0, 9, 1, 2])), 1.0)
    array([0, 1, 0, 0])
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    labels = connected_components(csr_array(gaps <= reach), directed=False)[1]
    return number_by_appearance(labels.astype(np.int64))


def number_by_appearance(labels: IntArray) -> IntArray:
    """Renumber clusters by the first client of each."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]


def grown(known: FloatArray, told: FloatArray) -> FloatArray:
    """Return what n clients told with what m newcomers did, (n + m, ...)."""
    return np.concatenate([known, told]) if len(known) else told
