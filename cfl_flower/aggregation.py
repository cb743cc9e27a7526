"""Means of models, and the server optimisers that use them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfl_flower.types import FloatArray, Vector


class RunningMean:
    """The mean of models that are taken in one by one, and not kept.

    Summed in float64, in the order of the calls.
    """

    def __init__(self) -> None:
        self._total: FloatArray = np.zeros(0)
        self._weight = 0.0

    def __bool__(self) -> bool:
        """Return whether anything was taken in."""
        return self._weight > 0

    def add(self, model: Vector, weight: float = 1.0) -> None:
        """Take in a model of shape (d,), with a weight of at least 0."""
        if len(self._total) == 0:
            self._total = np.zeros(model.shape, np.float64)
        self._total += np.multiply(model, weight, dtype=np.float64)
        self._weight += weight

    def value(self) -> Vector:
        """Return sum w_i x_i / sum w_i; at least one weight is above 0."""
        return (self._total / self._weight).astype(np.float32)


def mean_model(
    models: list[Vector], weights: FloatArray | list[float] | None = None
) -> Vector:
    """Return the mean of models, weighted (McMahan et al., 2017) or plain.

    Parameters
    ----------
    models : list of Vector, each of shape (d,)
        At least one.
    weights : array of shape (n,), optional
        Non-negative, not all 0; for example the number of samples.

    Returns
    -------
    Vector, shape (d,)
        Summed in float64, so that the order of clients is the only order.

    Examples
    --------
    >>> mean_model([np.float32([0, 2]), np.float32([4, 4])], [1.0, 3.0])
    array([3. , 3.5], dtype=float32)
    """
    mean = RunningMean()
    shares = np.ones(len(models)) if weights is None else np.asarray(weights, float)
    for share, model in zip(shares.tolist(), models, strict=True):
        mean.add(model, share)
    return mean.value()


def mix_models(models: list[Vector], mixing: FloatArray) -> list[Vector]:
    """Return one model per row of a mixing matrix.

    Parameters
    ----------
    models : list of K_old vectors
    mixing : array of shape (K_new, K_old)
        Row k holds the share of each old model in new model k.
    """
    return [
        mean_model([models[j] for j in np.flatnonzero(row)], row[np.flatnonzero(row)])
        for row in mixing
    ]


@dataclass(frozen=True)
class Average:
    """Server optimiser: a cluster's next model is the mean of its results."""

    def step(self, model: Vector, mean: Vector) -> Vector:
        """Return the next model from the current one and the mean of the results."""
        del model
        return mean
