"""CCFL: clients in charge of when they upload, served a mixture of cluster models.

"Client-Centric Federated Learning under Dynamic Mixtures of Distributions". No rounds:
a client uploads (w_m, tau) when it wants to. The server estimates the mixture u of K
distributions that it was trained on -> moves each cluster model towards it, by u and
staleness -> answers with sum_k u_k w_k and the time t.

Server keeps: K cluster models and when each was last updated, K public sets, each
client's last estimate, all past losses, gaps and distances. Leaves the device: the
trained model and the time stamp of the one that it started from (d floats, 8 bytes).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from cfl_flower.errors import InvalidResultError
from cfl_flower.settings import (
    Count,
    Fraction,
    NonNegative,
    Positive,
    require,
    settings,
)
from cfl_flower.types import BoolArray, FloatArray, Result, Vector
from strategies.families.soft import SoftSettings, SoftState, SoftStrategy


@settings("strategy")
class CCFLSettings(SoftSettings):
    """CCFL's settings, by the paper's symbols."""

    client: str = "clients.families.asynchronous.AsynchronousClient"
    tolerance: NonNegative | None = None
    """tau_0: uploads that are staler change nothing; in the unit of `staleness`. null:
    with `staleness=epochs` the number of clients (the paper's), with `cycles` two."""
    c1: Fraction = 0.5
    """Weight of the loss; the model distance has what c1 and c2 leave."""
    c2: Fraction = 0.25
    """Weight of the loss gap."""
    amplifiers: Annotated[list[Positive], Field(min_length=1)] = field(
        default_factory=lambda: [7.0]
    )
    """A; the softmax is repeated for each."""
    l_bar: float | Literal["min"] = "min"
    """Subtracted from the K losses; min: the smallest of them."""
    d1_bar: float | Literal["min"] = "min"
    """Subtracted from the K loss gaps."""
    d2_bar: float | Literal["min"] = "min"
    """Subtracted from the K model distances."""
    alpha1_bar: Fraction | None = None
    """Shares below it move no cluster; null for the mean, 1/K (`ave`)."""
    batches: Count = 16
    """Batch means that a loss is the sum of; 1 for a mean over the public set."""
    adjust_from: Fraction = 0.5
    """Share of all epochs after which updates are adjusted; 1 for never."""
    percentile: Annotated[float, Field(ge=0, le=100)] = 70.0
    """Percentile of earlier values above which an update is refused after
    `adjust_from`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        total = self.c1 + self.c2
        require(total <= 1 + 1e-9, "strategy.c1 + c2", total, "at most 1 in all")


@dataclass
class CCFLState(SoftState):
    """CCFL's state."""

    measured: FloatArray = field(default_factory=lambda: np.zeros((0, 0, 3)))
    """Loss, loss gap and model distance of every upload, shape (t, K, 3)."""


def above_bar(values: FloatArray, bar: float | str) -> FloatArray:
    """Return values less a bar, or less their minimum; negative ones become 0.

    Examples
    --------
    >>> above_bar(np.array([9.0, 12.0, 7.0]), 8).tolist()
    [1.0, 4.0, 0.0]
    >>> above_bar(np.array([9.0, 12.0, 7.0]), "min").tolist()
    [2.0, 5.0, 0.0]
    """
    # Algorithm 1: l_k - l_bar, d_1k - d_1bar and d_2k - d_2bar.
    least = values.min() if bar == "min" else float(bar)
    return np.maximum(values - least, 0)


def nearness(values: FloatArray) -> FloatArray:
    """Return (1 - v_k / sum v) / (K - 1), which sums to 1: Algorithm 1.

    Examples
    --------
    >>> nearness(np.array([1.0, 3.0, 0.0])).tolist()
    [0.375, 0.125, 0.5]
    >>> nearness(np.zeros(2)).tolist()
    [0.5, 0.5]
    """
    count = len(values)
    total = values.sum()
    if count == 1 or total == 0:
        return np.full(count, 1 / count)
    # Algorithm 1: 1 / (K - 1) times the sum of the others' over that of all.
    return (1 - values / total) / (count - 1)


def estimate_mixture(
    measured: FloatArray,
    bars: Sequence[float | str],
    weights: Sequence[float],
    amplifiers: Sequence[float],
) -> FloatArray:
    """Estimate the mixture, (K,), that a model was trained on: DistributionEstimation.

    ``measured`` has l_k, d_1k and d_2k, (K, 3), each with a bar and a weight: c_1, c_2
    and 1 - c_1 - c_2. softmax(A u) is taken for each amplifier A in turn.
    """
    from scipy.special import softmax

    columns = zip(measured.T, bars, weights, strict=True)
    terms = [w * nearness(above_bar(column, bar)) for column, bar, w in columns]
    # Algorithm 1: weights c_1, c_2 and 1 - c_1 - c_2.
    u: FloatArray = np.sum(terms, axis=0)
    for amplifier in amplifiers:
        # Algorithm 1: softmax(A u).
        amplified: FloatArray = softmax(amplifier * u)
        u = amplified
    return u


def moving_shares(u: FloatArray, bar: float | None = None) -> FloatArray:
    """Return what an upload moves each model by, before alpha_0: UpdateRatioCompute.

    ``u`` is its mixture, (K,). Shares below ``bar``, alpha_1bar or by default 1/K,
    become 0, and the largest becomes 1.

    Examples
    --------
    >>> moving_shares(np.array([0.5, 0.3, 0.2])).tolist()
    [1.0, 0.0, 0.0]
    """
    least = 1 / len(u) if bar is None else bar
    # Rounding can put the shares of an even mixture below their mean.
    return np.where(u < least - 1e-12, 0.0, u / u.max())


def unusual(measured: FloatArray, history: FloatArray, percentile: float) -> BoolArray:
    """Return for which clusters an upload is unusually bad: section 5.3.

    ``measured`` has the shape (K, 3), ``history`` (t, K, 3), and the answer (K,).
    """
    if not len(history):
        return np.zeros(len(measured), bool)
    limits = np.percentile(history, percentile, axis=0)
    return np.any(measured > limits, axis=1)


class CCFL(SoftStrategy):
    """The server estimates mixtures from the uploaded models alone."""

    Settings = CCFLSettings
    State = CCFLState

    def initial_state(self) -> CCFLState:
        """Return the state of K models before any upload."""
        soft: SoftState = super().initial_state()
        return CCFLState(**vars(soft), measured=np.zeros((0, len(soft.models), 3)))

    def reply(self, row: int, result: Result) -> list[Vector]:
        """Estimate, update, and mix with the updated models: ServerUpdate."""
        state = self.state
        settings = self.settings
        model = result.arrays[0]
        stamp = int(result.metrics["stamp"])
        # Algorithm 2: if t - tau > tau_0, the last mixture of the models as they are.
        if self.lags(state.epoch, stamp)[0] > self.tolerance:
            return [self.mix(row)]
        measured = self.measure(model)
        if not np.isfinite(measured).all():
            detail = "its losses on the public sets are not finite"
            raise InvalidResultError("non-finite", detail)
        bars = (settings.l_bar, settings.d1_bar, settings.d2_bar)
        weights = (settings.c1, settings.c2, 1 - settings.c1 - settings.c2)
        # Algorithm 2: DistributionEstimate.
        u = estimate_mixture(measured, bars, weights, settings.amplifiers)
        # Algorithm 2: UpdateRatioCompute.
        ratios = self.ratios(moving_shares(u, settings.alpha1_bar), stamp)
        # Section 5.3: the adjustment of the updates.
        total = self.run.config.rounds * self.run.config.participants
        if state.epoch > settings.adjust_from * total:
            refused = unusual(measured, state.measured, settings.percentile)
            ratios = np.where(refused, 0.0, ratios)
        state.measured = np.concatenate([state.measured, measured[None]])
        self.adopt(row, u)
        # Eq. 3, and sum_k u_mk w_k of the updated models.
        self.update(row, model, ratios)
        return [self.mix(row)]

    @property
    def tolerance(self) -> float:
        """tau_0, in the unit of `staleness`."""
        own: float | None = self.settings.tolerance
        if own is not None:
            return own
        in_epochs = self.settings.staleness == "epochs"
        return float(len(self.state.clients)) if in_epochs else 2.0

    def measure(self, model: Vector) -> FloatArray:
        """Return l_k, d_1k and d_2k of a model for all k, shape (K, 3)."""
        sets = self.public.validation
        models = self.state.models
        scale = self.settings.batches
        weights = slice(0, self.run.weights)
        losses = scale * sets.losses(model)
        own = scale * np.array([loss for loss, _ in sets.own(models)])
        distances = [float(np.linalg.norm(model[weights] - w[weights])) for w in models]
        # Algorithm 1: l_k, d_1k = |F(w_k; D_k) - l_k| and d_2k = |w_m - w_k|.
        return np.column_stack([losses, np.abs(own - losses), distances])
