"""Representations of clients' data, their checks, and the distances between them."""

from __future__ import annotations

import hashlib
from typing import Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from cfl_flower.errors import InvalidResultError
from cfl_flower.types import FloatArray, IntArray, Vector

Distance = Literal["l1", "js", "l2", "cosine"]
"""``l1``: sum_l |p_l - q_l| (Fielding, section 2.3); ``js``: Jensen-Shannon distance,
the square root of the divergence in nats, of distributions only; ``l2``: squared
Euclidean; ``cosine``: 1 - cos, and 1 from or to a vector of zeros."""

SAMPLED = 500
"""Members of a cluster up to which its mean distance is over all pairs; of a larger one
this many members are drawn."""

EXACT_WIDTH = 1000
"""Members of a cluster up to which all pairs are searched for the farthest."""

OUTERMOST = 32
"""Members of a larger one that are compared with all others."""

METRICS = {
    "l1": "cityblock",
    "js": "jensenshannon",
    "l2": "sqeuclidean",
    "cosine": "cosine",
}


def log_label_shares(labels: NDArray[np.integer], classes: int) -> Vector:
    """Return the logarithm of a client's smoothed label shares, shape (L,).

    Of n samples n_y have the label y, and its share is (n_y + 1) / (n + L), so that
    none is zero. Added to logits, they adjust these (Menon et al., ICLR 2021).

    Examples
    --------
    >>> np.exp(log_label_shares(np.array([1, 1]), 2)).round(2).tolist()
    [0.25, 0.75]
    """
    counts = np.bincount(labels, minlength=classes)
    return np.log((counts + 1) / (len(labels) + classes)).astype(np.float32)


def label_histogram(labels: NDArray[np.integer], classes: int) -> Vector:
    """Return the share of each label among a client's samples, shape (L,).

    Uniform for a client without samples.
    """
    if len(labels) == 0:
        return np.full(classes, 1 / classes, np.float32)
    counts = np.bincount(labels, minlength=classes)
    return (counts / len(labels)).astype(np.float32)


def chance_explains(
    histograms: FloatArray,
    counts: IntArray,
    significance: float,
    variance: FloatArray | float = 0.0,
) -> bool:
    """Return whether all clients may have drawn their labels from one distribution.

    Pearson's chi-squared test of homogeneity. A silhouette cannot choose a single
    cluster: sampling noise alone gives it a best K of 2 to 20.

    Histograms have shape (n, L), ``counts`` of the samples behind them (n,); clients
    without any are ignored. ``significance`` is the probability of finding groups where
    there are none; 0 never explains. ``variance`` is that of noise that was added to
    each count, of all clients or of each, (n,): it makes alike clients differ, too.

    Examples
    --------
    >>> same, other = np.array([[0.5, 0.5], [0.4, 0.6]]), np.eye(2)
    >>> [chance_explains(h, np.array([10, 10]), 0.01) for h in (same, other)]
    [True, False]
    """
    from scipy.special import chdtrc

    table = np.rint(histograms * counts[:, None])
    filled = table.sum(axis=1) > 0
    noise = np.broadcast_to(variance, len(table))[filled, None]
    table = table[filled]
    table = table[:, table.sum(axis=0) > 0]
    if significance == 0 or min(table.shape) < 2:
        return False
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    # A count's variance, its expected value under Poisson's law, grows by the noise's.
    statistic = ((table - expected) ** 2 / (expected + noise)).sum()
    freedom = (table.shape[0] - 1) * (table.shape[1] - 1)
    return bool(chdtrc(freedom, statistic) > significance)


def digest(representation: FloatArray) -> str:
    """Return 8 bytes, in hexadecimal, that identify a representation.

    The server sends a client the digest of the representation that it holds, so that a
    lost report is repeated.
    """
    return hashlib.blake2b(representation.tobytes(), digest_size=8).hexdigest()


def parse_vector(data: object, width: int, what: str) -> Vector:
    """Return a reported vector as a copy, after checking its type and values.

    Raises `InvalidResultError` if it is not ``width`` finite float32 numbers.
    """
    if not isinstance(data, bytes) or len(data) != 4 * width:
        size = f"{len(data)} bytes" if isinstance(data, bytes) else type(data).__name__
        detail = f"{what}: {size} instead of {4 * width} bytes"
        raise InvalidResultError("representation", detail)
    vector = np.frombuffer(data, np.float32).copy()
    if not np.isfinite(vector).all():
        raise InvalidResultError("representation", f"{what}: numbers must be finite")
    return vector


def check_histogram(histogram: Vector) -> None:
    """Raise `InvalidResultError` unless a vector is a distribution, up to rounding."""
    problem = ""
    if (histogram < 0).any():
        problem = "must not be negative"
    elif abs(float(histogram.sum()) - 1) > 1e-3:
        problem = f"sum to {histogram.sum():.4f} instead of 1"
    if problem:
        raise InvalidResultError("representation", f"label histogram: shares {problem}")


def unit(vector: Vector) -> Vector:
    """Return a vector scaled to length 1; a vector of zeros as it is."""
    length = float(np.linalg.norm(vector))
    return (vector / length).astype(np.float32) if length else vector


def distances(a: FloatArray, b: FloatArray, metric: Distance) -> FloatArray:
    """Return the distances, (n, m), between rows of matrices (n, L) and (m, L)."""
    from scipy.spatial.distance import cdist

    return _without_nan(cdist(a, b, METRICS[metric]), metric)


def pair_distances(points: FloatArray, metric: Distance) -> FloatArray:
    """Return the distances of all pairs of rows, each once: SciPy's condensed form."""
    from scipy.spatial.distance import pdist

    return _without_nan(pdist(points, METRICS[metric]), metric)


def _without_nan(gaps: FloatArray, metric: Distance) -> FloatArray:
    # Rounding can make the divergence of two equal rows slightly negative: 0, not NaN.
    # A vector of zeros has no direction: it is at the distance of orthogonal ones.
    if metric in ("js", "cosine"):
        np.nan_to_num(gaps, copy=False, nan=1.0 if metric == "cosine" else 0.0)
    return gaps


def largest_pairwise_distance(
    representations: FloatArray, clusters: IntArray, metric: Distance
) -> float:
    """Return the distance of the two clients farthest apart within one cluster.

    Fielding, Algorithm 4, line 9. 0 if every client is alone. In a cluster of more than
    `EXACT_WIDTH` only the `OUTERMOST` members, those farthest from its centre, are
    compared with all others: a lower bound, in L1 at least half of the distance.
    """
    farthest = 0.0
    for cluster in np.unique(clusters):
        members = representations[clusters == cluster]
        some = np.arange(len(members))
        if len(members) > EXACT_WIDTH:
            centre = members.mean(axis=0, keepdims=True)
            gaps = distances(members, centre, metric)[:, 0]
            some = np.argsort(-gaps, kind="stable")[:OUTERMOST]
        block = distances(members[some], members, metric)
        # A vector of zeros is 1 from itself under the cosine.
        block[np.arange(len(some)), some] = 0.0
        farthest = max(farthest, float(block.max()))
    return farthest


def mean_client_distance(
    representations: FloatArray,
    clusters: IntArray,
    metric: Distance,
    rng: Generator | None = None,
) -> float | None:
    """Return the heterogeneity of a clustering: Fielding, section 2.1.

    For each client the mean distance to the other members of its cluster, then the
    mean over all clients (not over clusters: Appendix B.2). A client alone in its
    cluster has 0. None without any client. Representations have shape (n, L).

    ``rng`` draws `SAMPLED` members of each cluster that has more; without it all pairs
    are taken, which are minutes for 100,000 clients.
    """
    if len(clusters) == 0:
        return None
    total = 0.0
    for cluster in np.unique(clusters):
        members = representations[clusters == cluster]
        count = len(members)
        if rng is not None and count > SAMPLED:
            members = members[rng.choice(count, SAMPLED, replace=False)]
        if len(members) > 1:
            pairs = pair_distances(members, metric)
            shown = 2 * float(pairs.sum()) / (len(members) - 1)
            total += shown * (count / len(members))
    return total / len(clusters)
