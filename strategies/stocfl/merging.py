"""StoCFL's stochastic client clustering on arrays.

Every client starts as a cluster of its own; clusters whose members meet in a round are
merged while their cosine is above tau. Inner products suffice to find the merges.
"""

from __future__ import annotations

import numpy as np

from cfl_flower.clustering.similarity import cosines_of
from cfl_flower.learning.aggregation import mean_model
from cfl_flower.types import BoolArray, FloatArray, IntArray, Vector


def find_merges(
    products: FloatArray, threshold: float, recompute: bool = True
) -> list[tuple[int, int]]:
    """Return the pairs of clusters to merge, best first: Algorithm 1, lines 10-13.

    The second of a pair goes into the first, which is the lower one; one with a cosine
    of at most ``threshold``, tau, is not merged. ``products`` are inner products of the
    clusters' sums of psi, shape (t, t). Those of a merged cluster are the sums of its
    parts'; without ``recompute``, it is compared by its best part (single linkage).

    Examples
    --------
    Three directions at 0, 40 and 75 degrees, tau = cos 50. The second pair is merged
    first; their mean lies at 57.5 degrees from the first.

    >>> angles = np.radians([0, 40, 75])
    >>> cosines = np.cos(angles[:, None] - angles)
    >>> find_merges(cosines, np.cos(np.radians(50)))
    [(1, 2)]
    >>> find_merges(cosines, np.cos(np.radians(50)), recompute=False)
    [(1, 2), (0, 1)]
    """
    if len(products) < 2:
        return []
    products = (products + products.T) / 2
    cosines = cosines_of(products)
    np.fill_diagonal(cosines, -np.inf)
    # The best partner of each: a merge costs O(t) instead of O(t^2).
    nearest = cosines.argmax(axis=1)
    best = cosines.max(axis=1)
    merges: list[tuple[int, int]] = []
    while len(merges) < len(products) - 1:
        first = int(best.argmax())
        # Line 12: M_ij > tau.
        if not best[first] > threshold:
            break
        second = int(nearest[first])
        merges.append((first, second))
        if recompute:
            products[first] += products[second]
            products[:, first] += products[:, second]
            row = cosines_of(products, first)
        else:
            row = np.maximum(cosines[first], cosines[second])
        row[np.isneginf(cosines[first]) | np.isneginf(cosines[second])] = -np.inf
        row[[first, second]] = -np.inf
        cosines[first] = row
        cosines[:, first] = row
        cosines[second] = -np.inf
        cosines[:, second] = -np.inf
        # Clusters nearest to one of the two search again, unless it came nearer.
        touched = (nearest == first) | (nearest == second)
        nearer = (row > best) | ((row == best) & ((first < nearest) | touched))
        nearest[nearer] = first
        best[nearer] = row[nearer]
        again = np.flatnonzero(touched & ~nearer)
        again = np.union1d(again, [first, second])
        nearest[again] = cosines[again].argmax(axis=1)
        best[again] = cosines[again].max(axis=1)
    return merges


def merge_models(
    models: list[Vector], sizes: IntArray, trained: BoolArray, rule: str
) -> tuple[Vector, bool]:
    """Return the model of two merged clusters, and whether it was trained (StoCFL).

    That of the cluster with the lower number is the first; ``sizes``, their members,
    and ``trained``, whether anyone has trained them, have shape (2,). The rule ``mean``
    weights those that were trained by members; ``larger``, as in the authors' code,
    takes the first, unless the second is of a larger cluster and was trained.

    Examples
    --------
    >>> pair = [np.float32([1]), np.float32([5])]
    >>> merge_models(pair, np.array([3, 1]), np.array([True, True]), "mean")
    (array([2.], dtype=float32), True)
    """
    if rule == "larger":
        # The code asks only whether the larger has a model to take: one that nobody
        # trained replaces none.
        kept = int(sizes[1] > sizes[0] and trained[1])
    elif trained.all():
        return mean_model(models, sizes.astype(float)), True
    else:
        kept = int(trained[1])
    return models[kept], bool(trained[kept])


def purity(clusters: IntArray, truth: IntArray) -> float:
    """Return the share of clients whose concept is their cluster's most frequent one.

    Both arrays have shape (n,), n at least 1.
    """
    from sklearn.metrics.cluster import contingency_matrix

    counts = contingency_matrix(truth, clusters)
    return float(counts.max(axis=0).sum() / len(clusters))
