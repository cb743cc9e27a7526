"""Means of models, and the server optimisers that use them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, TypeAlias

import numpy as np
from pydantic import Field

from cfl_flower.settings import NonNegative, Positive, settings
from cfl_flower.types import FloatArray, Vector

Decay: TypeAlias = Annotated[float, Field(ge=0, lt=1)]

BLOCK = 2**15
"""Entries that are added at a time: they stay in the processor's cache."""

Memory: TypeAlias = list[Vector]
"""The state of a server optimiser for one cluster's model."""

Step: TypeAlias = tuple[Vector, Memory]
"""The next model, and the state for the step after."""


class RunningMean:
    """The mean of models that are added one by one, and not stored.

    The sum is float64, in the order of the calls.
    """

    def __init__(self) -> None:
        self._total: FloatArray = np.zeros(0)
        self._term: FloatArray = np.zeros(BLOCK)
        self._weight = 0.0

    def __bool__(self) -> bool:
        """Return whether a weight above 0 was added."""
        return self._weight > 0

    def add(self, model: Vector, weight: float = 1.0) -> None:
        """Add a model of shape (d,), with a weight of at least 0."""
        if len(self._total) == 0:
            self._total = np.zeros(model.shape, np.float64)
        for start in range(0, len(model), BLOCK):
            total = self._total[start : start + BLOCK]
            term = self._term[: len(total)]
            np.copyto(term, model[start : start + BLOCK])
            term *= weight
            total += term
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
    models : list of Vector
        At least one, shape (d,) each, which are summed in float64 in their order.
    weights : sequence of float, optional
        Such as numbers of samples: at least 0 and not all 0, one for each model.

    Returns
    -------
    Vector, shape (d,)
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
    models : list of Vector
        K_old models.
    mixing : array, shape (K_new, K_old)
        Row k has the share of each old model in the new model k.

    Returns
    -------
    list of Vector
        K_new models.
    """
    return [
        mean_model([models[j] for j in np.flatnonzero(row)], row[np.flatnonzero(row)])
        for row in mixing
    ]


def mixture(models: Sequence[Vector], shares: Vector) -> Vector:
    """Return sum_k u_k w_k of K models (d,) and their shares (K,), in float32."""
    mixed = np.zeros_like(models[0])
    for share, model in zip(shares, models, strict=True):
        mixed += share * model
    return mixed


@settings("server_optimizer")
class Average:
    """Server optimiser: a cluster's next model is the mean of its results."""

    by_loss: ClassVar[bool] = False

    def step(self, model: Vector, mean: Vector, weights: int, memory: Memory) -> Step:
        """Return the next model and the state for the step after.

        Parameters
        ----------
        model : Vector, shape (d,)
            The current model.
        mean : Vector, shape (d,)
            The mean of its results.
        weights : int
            p; the numbers behind the first p are running statistics.
        memory : list of Vector
            What the step to ``model`` returned; empty for a first step.

        Returns
        -------
        Vector, list of Vector
            The next model, shape (d,), and what is remembered of it.
        """
        return mean, []


@settings("server_optimizer")
class FedYogi(Average):
    """Server optimiser of Reddi et al. (ICLR 2021), with FedScale's start v_0 = tau.

    Each cluster's model has moments of its own. Running statistics are no weights: they
    are averaged.
    """

    learning_rate: Positive = 3e-3
    """eta, the server's step size."""
    tau: Positive = 1e-8
    """Adaptivity, and the initial second moment."""
    beta1: Decay = 0.9
    """Decay of the first moment."""
    beta2: Decay = 0.99
    """Decay of the second moment."""

    def step(self, model: Vector, mean: Vector, weights: int, memory: Memory) -> Step:
        """Return the next model, and the moments m and v of its weights."""
        update = mean[:weights].astype(float) - model[:weights]
        if memory:
            first, second = (moment.astype(float) for moment in memory)
        else:
            first = np.zeros(weights)
            second = np.full(weights, self.tau)
        # m <- beta1 m + (1 - beta1) Delta.
        first = self.beta1 * first + (1 - self.beta1) * update
        square = update**2
        # v <- v - (1 - beta2) Delta^2 sign(v - Delta^2).
        second = second - (1 - self.beta2) * square * np.sign(second - square)
        # w <- w + eta m / (sqrt(v) + tau).
        scale = np.sqrt(second) + self.tau
        stepped = model[:weights] + self.learning_rate * first / scale
        fresh = np.concatenate([stepped, mean[weights:]]).astype(np.float32)
        return fresh, [first.astype(np.float32), second.astype(np.float32)]


@settings("server_optimizer")
class QFedAvg(Average):
    """Server optimiser of Li et al. (ICLR 2020), which favours large losses."""

    q: NonNegative = 1.0
    """Weight of large losses; 0 is the plain mean."""
    learning_rate: Positive = 0.1
    """The clients' step size, 1 / L, which turns an update into a gradient; the same in
    all rounds, whatever their schedule."""

    by_loss: ClassVar[bool] = True

    def combine(
        self, model: Vector, results: list[Vector], losses: FloatArray, weights: int
    ) -> Vector:
        """Return w - sum_i Delta_i / sum_i h_i: Li et al., Algorithm 2.

        ``model`` is w, shape (d,), which all clients received; ``losses`` are F_i(w),
        before the training, shape (m,). The running statistics behind the p ``weights``
        are averaged.

        Examples
        --------
        >>> start, results = np.zeros(1, np.float32), [np.float32([1]), np.float32([3])]
        >>> QFedAvg(q=0).combine(start, results, np.array([1.0, 9.0]), weights=1)
        array([2.], dtype=float32)
        """
        sharp = losses + 1e-10
        # Both sums as multiples of F^q of the largest loss, which may be any number.
        largest = float(sharp.max())
        total = np.zeros(weights)
        curvature = 0.0
        for result, loss in zip(results, sharp.tolist(), strict=True):
            moved = model[:weights] - result[:weights].astype(float)
            gradient = moved / self.learning_rate
            power = (loss / largest) ** self.q
            # Delta_i = F_i^q (w - w_i) / eta.
            total += power * gradient
            norm = float(gradient @ gradient)
            # h_i = q F_i^(q - 1) |(w - w_i) / eta|^2 + F_i^q / eta.
            curvature += self.q * power / loss * norm
            curvature += power / self.learning_rate
        # w <- w - sum_i Delta_i / sum_i h_i.
        stepped = model[:weights] - total / curvature
        rest = mean_model([result[weights:] for result in results])
        return np.concatenate([stepped, rest]).astype(np.float32)
