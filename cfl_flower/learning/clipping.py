"""Bounds on what one client can change: an update's length, and a report's."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfl_flower.types import Vector

DoubleVector = NDArray[np.float64]


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
