"""Angles between the subspaces that clients' samples span; pure functions on arrays.

A subspace is given by principal vectors of length 1, whose signs have no meaning;
missing vectors are zero.
"""

from __future__ import annotations

import numpy as np

from cfl_flower.types import FloatArray

RIGHT = 90.0
"""The angle of what has nothing in common, in degrees."""


def subspace_angles(subspaces: FloatArray) -> FloatArray:
    """Return the angles, in degrees, between the subspaces of n clients, (n, n).

    The smallest angle between any two vectors, as in PACFL's code. ``subspaces`` has v
    vectors of length 1 for each client, (n, v, z). Missing vectors are zero, and at 90
    degrees to all others. The sign of a vector has no meaning.

    Examples
    --------
    >>> two = np.array([[[1.0, 0]], [[0.5, 0.75**0.5]]])
    >>> round(float(subspace_angles(two)[0, 1]), 3)
    60.0
    """
    gaps = np.zeros((len(subspaces), len(subspaces)))
    for client, one in enumerate(subspaces):
        nearest = abs(subspaces @ one.T).max(axis=(1, 2))
        gaps[client] = np.arccos(np.minimum(nearest, 1))
    np.fill_diagonal(gaps, 0)
    return np.degrees(gaps)


def of_labels(subspaces: FloatArray, vectors: int) -> FloatArray:
    """Divide the vectors of n clients, (n, L p, z), by labels: (n, L, p, z)."""
    count, _, length = subspaces.shape
    return subspaces.reshape(count, -1, vectors, length)


def class_angles(
    subspaces: FloatArray, counts: FloatArray, spread: float
) -> FloatArray:
    """Return the mean angle over labels between n clients, (n, n): FedDAG, eq. 4 to 6.

    Parameters
    ----------
    subspaces : array, shape (n, L, p, z)
        The p vectors of the samples of each label.
    counts : array, shape (n, L)
        How many samples they are.
    spread : float
        delta: angles count from 1 - delta times, for equal counts, to 1 + delta times,
        for the most different ones.

    Examples
    --------
    >>> turned = np.array([[[[1.0, 0]]], [[[0.5, 0.75**0.5]]]])
    >>> float(class_angles(turned, np.full((2, 1), 5), 0.25)[0, 1].round(3))
    45.0
    """
    logs = np.log(counts + 1)
    held = counts > 0
    lows = np.where(held, logs, np.inf).min(axis=0)
    # The largest W of eq. 5; the smallest is a client's with itself, 1.
    most = max((logs / lows).max(), 1 + 1e-9)
    total: FloatArray = np.zeros((len(counts), len(counts)))
    for label in range(counts.shape[1]):
        own = logs[:, label]
        there = held[:, label]
        both = np.logical_and.outer(there, there)
        # Eq. 4; where one of them lacks the label 90 degrees, where both do 0.
        angles = subspace_angles(subspaces[:, label])
        alone = RIGHT * np.logical_xor.outer(there, there)
        # Eq. 5, and its normalised form.
        high = np.maximum.outer(own, own)
        low = np.minimum.outer(own, own)
        ratio = np.divide(high, low, out=np.ones_like(high), where=both)
        weights = 1 - spread + 2 * spread * (ratio - 1) / (most - 1)
        total += np.where(both, angles * weights, alone)
    total /= counts.shape[1]
    return total
