"""Bounds on what one client can change: an update's length, and a report's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfl_flower.types import BoolArray, FloatArray, Vector

DoubleVector = NDArray[np.float64]

FEWEST = 5
"""Clients among which two can be outvoted."""

LONGEST = 2.0
"""Times the median length of clients' means of a class that another's may have."""

FAR = 10.0
"""Multiple of the median length of clients' reports beyond which one is refused or
shortened: it would be at the same distance from all others, and they would seem
alike."""


def clip(vector: NDArray[np.floating[Any]], bound: float) -> DoubleVector:
    """Return a vector of shape (d,), shortened to an L2 length of at most ``bound``.

    Examples
    --------
    >>> clip(np.array([3.0, 4.0]), 1), clip(np.array([0.3, 0.4]), 1)
    (array([0.6, 0.8]), array([0.3, 0.4]))
    """
    exact = vector.astype(np.float64)
    length = float(np.linalg.norm(exact))
    return exact * (bound / length) if length > bound else exact


def clipped_update(model: Vector, received: Vector, bound: float) -> DoubleVector:
    """Return a model minus the received one, (d,), of a length of at most ``bound``."""
    return clip(model.astype(np.float64) - received, bound)


def capped_counts(counts: FloatArray, cap: float | None) -> FloatArray:
    """Return clients' counts, (m, k), limited to ``cap`` times a median client's sum.

    Examples
    --------
    >>> capped_counts(np.array([[4.0, 1.0], [0.0, 5.0], [2.0**28, 0.0]]), 10).tolist()
    [[4.0, 1.0], [0.0, 5.0], [50.0, 0.0]]
    """
    if cap is None:
        return counts
    typical = float(np.median(counts.sum(axis=1)))
    return np.minimum(counts, cap * typical)


def capped_losses(
    losses: FloatArray, cap: float | None, there: BoolArray | None = None
) -> FloatArray:
    """Return losses of clients, (m, ...), up to ``cap`` times the median, or ``cap``.

    Small losses of most clients do not limit what another one, with a cross-entropy of
    a few nats, may have. Where only some are ``there``, the median is the `typical` one
    of theirs, entry by entry.
    """
    if cap is None:
        return losses
    usual = np.median(losses) if there is None else typical(losses, there)
    return np.minimum(losses, cap * np.maximum(1.0, usual))


def typical(values: FloatArray, there: BoolArray) -> FloatArray:
    """Return the median over clients, (...), of the values (m, ...) that are there.

    Of an even number it is the smaller one in the middle, so that one of two clients
    cannot raise it. It is infinite where there is none.

    Examples
    --------
    >>> values = np.array([[1.0, 5.0, 0.0], [900.0, 6.0, 0.0], [0.0, 7.0, 0.0]])
    >>> typical(values, values > 0).tolist()
    [1.0, 6.0, inf]
    """
    ranked = np.sort(np.where(there, values, np.inf), axis=0)
    middle = np.maximum(np.count_nonzero(there, axis=0) - 1, 0) // 2
    found: FloatArray = np.take_along_axis(ranked, middle[None], axis=0)[0]
    return found


def capped_means(points: FloatArray, counts: FloatArray) -> FloatArray:
    """Return clients' class means, (m, L, D), none much longer than the others' of it.

    Means of one class are of about the same length. One that is `LONGEST` times as
    long as the median of those with samples, (m, L), would be the anchor alone. A mean
    of zeros says nothing of their length.
    """
    lengths = np.linalg.norm(points.astype(np.float64), axis=2)
    bounds = LONGEST * typical(lengths, (counts > 0) & (lengths > 0))
    shares = np.minimum(1, bounds / np.where(lengths > 0, lengths, 1))
    return (points * shares[:, :, None]).astype(np.float32)


def capped_lengths(vectors: Sequence[Vector]) -> list[Vector]:
    """Return vectors, (d,) each, none longer (L2) than `FAR` times the `typical` one.

    Examples
    --------
    >>> [each.tolist() for each in capped_lengths(np.float32([[1], [2], [3000]]))]
    [[1.0], [2.0], [20.0]]
    """
    lengths = np.array([np.linalg.norm(each.astype(np.float64)) for each in vectors])
    bound = FAR * float(typical(lengths, lengths > 0))
    return [clip(each, bound).astype(np.float32) for each in vectors]


def nearest(model: Vector, received: Sequence[Vector]) -> int | None:
    """Return which of the received models a model is a new version of: the nearest.

    None if it is of another length than all: it is no version of a received model.

    Examples
    --------
    >>> received = [np.float32([0, 0]), np.float32([9, 9]), np.float32([1])]
    >>> nearest(np.float32([8, 9]), received), nearest(np.float32([]), received)
    (1, None)
    """
    alike = [i for i, each in enumerate(received) if len(each) == len(model) > 0]
    if len(alike) < 2:
        return alike[0] if alike else None
    return min(alike, key=lambda i: update_length(model, received[i]))


def update_length(model: Vector, received: Vector) -> float:
    """Return the L2 length of an update."""
    return float(np.linalg.norm(model.astype(np.float64) - received))


def shortened(model: Vector, received: Vector, bound: float) -> Vector:
    """Return a model whose update is of a length of at most ``bound``."""
    return (received + clipped_update(model, received, bound)).astype(np.float32)
