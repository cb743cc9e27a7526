"""Clustering algorithms and the choice of K, as pure functions on arrays."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.stats import trim_mean
from sklearn.cluster import (
    AgglomerativeClustering,
    KMeans,
    MiniBatchKMeans,
    kmeans_plusplus,
)

from cfl_flower.clustering.representations import Distance, distances
from cfl_flower.seeding import one_thread
from cfl_flower.settings import Count, Fraction, require, settings
from cfl_flower.types import FloatArray, IntArray

BLOCK_ROWS = 1024
"""Rows of the distance matrix in a block: 40 MB of float64 at 5,000 clients."""

EXACT = 10_000
"""Clients up to which k-means uses all points and silhouettes use all pairs."""

SAMPLED = 5_000
"""Clients in the sample that silhouettes are computed on above `EXACT`."""


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
        low, high = self.smallest, self.largest
        require(high >= low, "strategy.scan.largest", high, f"at least {low}")


def cluster_centres(points: FloatArray, labels: IntArray, count: int) -> FloatArray:
    """Return the mean of each cluster's points; NaN rows for empty clusters.

    Parameters
    ----------
    points : array of shape (n, L)
    labels : int array of shape (n,)
        The cluster of each point, from 0 to ``count`` - 1.
    """
    each = np.arange(len(labels))
    members = csr_array((np.ones(len(each)), (labels, each)), (count, len(each)))
    sizes = np.bincount(labels, minlength=count)
    with np.errstate(invalid="ignore"):
        result: FloatArray = (members @ points) / sizes[:, None]
    return result


def trimmed_centres(
    points: FloatArray, labels: IntArray, count: int, trim: float
) -> FloatArray:
    """Return the trimmed mean of each cluster's points, coordinate by coordinate.

    Of m members the floor(trim m) smallest and largest values of each coordinate are
    ignored (Yin et al., ICML 2018): with at most that many forged members, each
    coordinate lies within the range of the honest ones. NaN rows for empty clusters.

    Parameters
    ----------
    points : array of shape (n, L)
    labels : int array of shape (n,)
    trim : float
        Below 0.5.

    Examples
    --------
    >>> points = np.array([[0.0], [1.0], [2.0], [99.0]])
    >>> trimmed_centres(points, np.zeros(4, int), 1, 0.25)
    array([[1.5]])
    """
    result = np.full((count, points.shape[1]), np.nan)
    for cluster in np.unique(labels):
        members = points[labels == cluster].astype(float)
        result[cluster] = trim_mean(members, trim, axis=0)
    return result


def put_stragglers_together(
    points: FloatArray, labels: IntArray, least: int, metric: Distance
) -> IntArray:
    """Merge all clusters that have too few members into one.

    If that has too few, too, its members join the nearest of the others.

    Parameters
    ----------
    points : array of shape (n, L)
    labels : int array of shape (n,)
        From 0 without gaps.

    Returns
    -------
    int array of shape (n,)
        From 0 without gaps; the common cluster is the last.

    Examples
    --------
    >>> points, labels = np.eye(7), np.array([0, 0, 0, 1, 2, 3, 3])
    >>> put_stragglers_together(points, labels, 3, "l1")
    array([0, 0, 0, 1, 1, 1, 1])
    """
    sizes = np.bincount(labels)
    large = np.flatnonzero(sizes >= least)
    place = np.full(len(sizes), len(large))
    place[large] = np.arange(len(large))
    together: IntArray = place[labels]
    common = together == len(large)
    if 0 < common.sum() < least and len(large):
        centres = cluster_centres(points[~common], together[~common], len(large))
        together[common] = nearest_centre(points[common], centres, metric)
    return together


def nearest_centre(
    points: FloatArray, centres: FloatArray, metric: Distance
) -> IntArray:
    """Return the nearest centre of each point, the lowest id on a tie.

    Centres of NaN are skipped.
    """
    absent = np.asarray(np.isnan(centres).any(axis=1))
    gaps = distances(points, np.where(absent[:, None], 0, centres), metric)
    gaps[:, absent] = np.inf
    nearest: IntArray = gaps.argmin(axis=1)
    return nearest


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
    shares: FloatArray = counts / counts.sum(axis=1, keepdims=True)
    return shares


def silhouettes(
    points: FloatArray, labelings: list[IntArray], metric: Distance
) -> list[float]:
    """Return the mean silhouette (Rousseeuw, 1987) of many clusterings of one set.

    Half of the distances are computed, once, in blocks of rows, and summed per cluster
    for all clusterings in one matrix product: the distance matrix is never stored.

    Parameters
    ----------
    points : array of shape (n, L)
    labelings : list of int arrays of shape (n,)
        Each with at least two clusters, numbered from 0 without gaps.
    metric : {"l1", "js"}
    """
    onehot = np.concatenate(
        [np.eye(labels.max() + 1, dtype=np.float32)[labels] for labels in labelings], 1
    )
    sums = _distance_sums(points, onehot, metric)
    widths = [int(labels.max()) + 1 for labels in labelings]
    parts = np.split(sums, np.cumsum(widths)[:-1], axis=1)
    return [_silhouette(*pair) for pair in zip(parts, labelings, strict=True)]


def _distance_sums(
    points: FloatArray, onehot: FloatArray, metric: Distance
) -> FloatArray:
    """Return the sum of each point's distances to every cluster, shape (n, sum K)."""
    n = len(points)
    sums = np.zeros(onehot.shape, np.float32)
    for start in range(0, n, BLOCK_ROWS):
        rows = slice(start, min(start + BLOCK_ROWS, n))
        rest = slice(rows.stop, n)
        block = distances(points[rows], points[start:], metric)
        if metric == "cosine":
            # A vector of zeros is 1 from itself.
            np.fill_diagonal(block, 0.0)
        half = block.astype(np.float32)
        sums[rows] += half @ onehot[start:]
        sums[rest] += half[:, rows.stop - start :].T @ onehot[rows]
    return sums


def _silhouette(sums: FloatArray, labels: IntArray) -> float:
    """Turn a point's distance sums into the mean of (b - a) / max(a, b)."""
    each = np.arange(len(labels))
    sizes = np.bincount(labels)
    own = sizes[labels]
    inside = sums[each, labels] / np.maximum(own - 1, 1)
    means = sums / sizes
    means[each, labels] = np.inf
    outside = means.min(axis=1)
    widest = np.maximum(inside, outside)
    values = np.divide(
        outside - inside, widest, out=np.zeros_like(widest), where=widest > 0
    )
    return float(np.where(own > 1, values, 0.0).mean())


def choose_clusters(
    points: FloatArray,
    metric: Distance,
    scan: KMeansScan,
    rng: np.random.Generator,
    least: float = -1.0,
) -> IntArray:
    """Cluster clients by k-means, with K chosen by the silhouette.

    Fielding, Algorithm 3, where the largest silhouette decides. Where there are no
    clusters silhouettes are low and flat, and the largest is one of many small clusters
    by chance: up to `KMeansScan.substantial` the smallest K is taken. K-means++
    minimises squared L2; the silhouette uses the representation's own distance.

    Parameters
    ----------
    points : array of shape (n, L)
    least : float
        The silhouette below which all clients are one cluster.

    Returns
    -------
    int array of shape (n,)
        Numbered by first appearance, so that equal clusterings have equal ids. One
        cluster if there are too few distinct points for two, or no silhouette reaches
        ``least``.
    """
    distinct = len(np.unique(points, axis=0))
    largest = min(scan.largest, len(points) - 1, distinct)
    if largest < scan.smallest:
        return np.zeros(len(points), np.int64)
    with one_thread():
        if len(points) <= EXACT:
            labelings = _kmeans_for_each_k(points, scan, largest, rng)
            scores = silhouettes(points, labelings, metric)
        else:
            labelings = _mini_batch_for_each_k(points, scan, largest, rng)
            scores = _sampled_silhouettes(points, labelings, metric, rng)
    best = max(scores)
    if best < least:
        return np.zeros(len(points), np.int64)
    return labelings[scores.index(best) if best > scan.substantial else 0]


def _kmeans_for_each_k(
    points: FloatArray, scan: KMeansScan, largest: int, rng: np.random.Generator
) -> list[IntArray]:
    """Return the best of several k-means clusterings for every K of the scan."""
    restarts = max(1, min(scan.restarts, 5000 // len(points)))
    # The first K seeds of a longer k-means++ seeding are a k-means++ seeding for K
    # (with scikit-learn's number of trials for the longer one).
    seedings = [
        kmeans_plusplus(points, largest, random_state=int(rng.integers(2**31)))[0]
        for _ in range(restarts)
    ]
    labelings = []
    for k in range(scan.smallest, largest + 1):
        fits = [KMeans(k, init=seeds[:k], n_init=1).fit(points) for seeds in seedings]
        best = min(fits, key=lambda fit: float(fit.inertia_))
        labelings.append(number_by_appearance(best.labels_))
    return labelings


def _mini_batch_for_each_k(
    points: FloatArray, scan: KMeansScan, largest: int, rng: np.random.Generator
) -> list[IntArray]:
    """Return one mini-batch k-means clustering (Sculley, 2010) for every K."""
    labelings = []
    for k in range(scan.smallest, largest + 1):
        state = int(rng.integers(2**31))
        method = MiniBatchKMeans(k, n_init=3, batch_size=4096, random_state=state)
        labelings.append(number_by_appearance(method.fit(points).labels_))
    return labelings


def _sampled_silhouettes(
    points: FloatArray,
    labelings: list[IntArray],
    metric: Distance,
    rng: np.random.Generator,
) -> list[float]:
    """Return the silhouettes of some of the points, the same for all clusterings."""
    some = np.sort(rng.choice(len(points), SAMPLED, replace=False))
    parts = [np.unique(labels[some], return_inverse=True)[1] for labels in labelings]
    several = [part if part.max() else None for part in parts]
    known = silhouettes(points[some], [p for p in several if p is not None], metric)
    scores = iter(known)
    return [-1.0 if part is None else next(scores) for part in several]


def kmeans(
    points: FloatArray, count: int, rng: np.random.Generator, restarts: int = 10
) -> IntArray:
    """Return the best of several k-means++ clusterings into K clusters, shape (n,).

    Into fewer than K = ``count`` if there are fewer distinct points.
    """
    distinct = min(count, len(np.unique(points, axis=0)))
    state = int(rng.integers(2**31))
    with one_thread():
        fit = KMeans(distinct, n_init=restarts, random_state=state).fit(points)
    labels: IntArray = fit.labels_.astype(np.int64)
    return labels


def complete_linkage(gaps: FloatArray, count: int) -> IntArray:
    """Cluster by complete linkage: the distance of clusters is their farthest members'.

    Returns ``count`` clusters of the rows of distances of shape (n, n), or n if fewer.
    """
    if len(gaps) < 2:
        return np.zeros(len(gaps), np.int64)
    method = AgglomerativeClustering(
        min(count, len(gaps)), metric="precomputed", linkage="complete"
    )
    labels: IntArray = method.fit(gaps).labels_.astype(np.int64)
    return labels


def connected(gaps: FloatArray, reach: float) -> IntArray:
    """Cluster points that are linked by steps of at most ``reach``, eps.

    DBSCAN (Ester et al., 1996) with min_samples = 1, where nothing is noise. ``gaps``
    are symmetric distances, shape (n, n); clusters are numbered by first appearance.

    Examples
    --------
    >>> connected(np.abs(np.subtract.outer([0, 9, 1, 2], [0, 9, 1, 2])), 1.0)
    array([0, 1, 0, 0])
    """
    labels = connected_components(csr_array(gaps <= reach), directed=False)[1]
    return number_by_appearance(labels.astype(np.int64))


def number_by_appearance(labels: IntArray) -> IntArray:
    """Renumber clusters by the first client of each.

    Examples
    --------
    >>> number_by_appearance(np.array([7, 7, 2, 7, 4]))
    array([0, 0, 1, 0, 2])
    """
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    numbered: IntArray = rank[inverse]
    return numbered
