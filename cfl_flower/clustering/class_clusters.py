"""Clusters of clients in each class: the class-level clustering of FedCCFA."""

from __future__ import annotations

import numpy as np

from cfl_flower.clustering.algorithms import connected
from cfl_flower.clustering.similarity import cosine_matrix, madc
from cfl_flower.seeding import one_thread
from cfl_flower.types import FloatArray, IntArray


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
            means[members, label] = (shares @ values[members, label])[own]
    return means
