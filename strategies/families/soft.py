"""The strategy of CCFL and FedSoft: K models of distributions that clients mix.

The K distributions are known to the server by a public set each, on which their models
are pre-trained. An upload of client m, which is a mixture u of the distributions, moves
model k by an update ratio: w_k <- (1 - alpha_k) w_k + alpha_k w_m (CCFL, eq. 3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from cfl_flower.engine.asynchronous import AsynchronousStrategy
from cfl_flower.engine.method import Published
from cfl_flower.engine.uploads_state import AsynchronousSettings, AsynchronousState
from cfl_flower.learning.aggregation import mixture
from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.settings import NonNegative, require, settings
from cfl_flower.state import no_clusters
from cfl_flower.types import FloatArray, IntArray, Json, Result, Vector
from strategies.families.public_models import PublicModels, PublicSettings


@settings("strategy")
class SoftSettings(PublicSettings):
    """The settings that CCFL and FedSoft share."""

    client: str = "clients.fedsoft.FedSoftClient"
    local: LocalTraining = field(default_factory=partial(LocalTraining, mu=0.1))
    alpha: Annotated[float, Field(gt=0, le=1)] = 0.025
    """alpha_0, the largest update ratio."""
    a: NonNegative = 10.0
    """Damping of stale uploads: 1 below b, 1 / (a * staleness + 1) from there."""
    b: NonNegative = 5.0
    """Staleness from which an upload is damped."""
    staleness: Literal["cycles", "epochs"] = "cycles"
    """Unit of staleness: epochs, as printed, or epochs over the number of clients."""


@dataclass
class SoftState(AsynchronousState):
    """The state; ``models`` has a model of each of the K distributions."""

    updated: IntArray = field(default_factory=no_clusters)
    """t_k, the epoch of each model's last update, shape (K,)."""
    shares: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    """u, each client's last estimated mixture, at first uniform, shape (n, K)."""
    ratios: dict[int, FloatArray] = field(default_factory=dict)
    """The update ratios, (K,), of the upload that is being taken in, by its row."""


def damping(lags: FloatArray, a: float, b: float) -> FloatArray:
    """Return alpha_2k: 1 where the lag t_k - tau is below b, else 1 / (a lag + 1).

    Algorithm 1 of CCFL.

    Examples
    --------
    >>> damping(np.array([-3.0, 4.0, 5.0]), a=10, b=5).round(4).tolist()
    [1.0, 1.0, 0.0196]
    """
    # Algorithm 1 of CCFL: alpha_2k.
    late = 1 / (a * np.maximum(lags, 0) + 1)
    return np.where(lags < b, 1.0, late)


def divergence(truth: FloatArray, estimate: FloatArray) -> float:
    """Return KL(truth || estimate) of two mixtures; estimates of 0 count as 1e-12.

    Examples
    --------
    >>> round(divergence(np.array([1.0, 0.0]), np.array([0.5, 0.5])), 4)
    0.6931
    """
    known = truth > 0
    ratio = truth[known] / np.maximum(estimate[known], 1e-12)
    return float(np.sum(truth[known] * np.log(ratio)))


class SoftStrategy(AsynchronousStrategy):
    """K pre-trained models, moved by every upload in proportion to its mixture."""

    Settings: ClassVar[type[AsynchronousSettings]] = SoftSettings
    State = SoftState
    published = Published("the distributions' models, of which clients use mixtures")

    # The method ----------------------------------------------------------------------

    def initial_state(self) -> Any:
        """Return K equal models; they are trained when the first clients come."""
        self.public = PublicModels(self.run.config, self.run.timeline)
        count = len(self.public.sets)
        asked = self.settings.clusters
        ok = asked is None or asked == count
        allowed = f"{count}, the number of public sets, or null"
        require(ok, "strategy.clusters", asked, allowed)
        return SoftState(
            [],
            no_clusters(),
            [self.run.initial_model()] * count,
            updated=np.zeros(count, np.int64),
            shares=np.zeros((0, count)),
        )

    def welcome(self, server_round: int, newcomers: list[Result]) -> None:
        """Add newcomers with the mean of all models, as a uniform mixture."""
        state = self.state
        if not state.clients:
            state.models = self.public.pretrain(self.run.initial_model())
        even = np.full((len(newcomers), len(state.models)), 1 / len(state.models))
        state.shares = np.concatenate([state.shares, even])
        super().welcome(server_round, newcomers)

    def ratios(self, shares: FloatArray, stamp: int) -> FloatArray:
        """Return the update ratios of an upload, from what it moves each model by.

        ``shares`` are (K,); ``stamp`` is the time of the model that it started from.
        """
        settings = self.settings
        lags = self.lags(self.state.updated, stamp)
        # Algorithm 1 of CCFL: alpha_0 alpha_1k alpha_2k.
        moved: FloatArray = settings.alpha * shares
        return moved * damping(lags, settings.a, settings.b)

    def update(self, row: int, model: Vector, ratios: FloatArray) -> None:
        """Move each model k towards an uploaded one by its ratio alpha_k: CCFL, eq. 3.

        Models with ratio 0, and their times of the last update, do not change.
        """
        state = self.state
        for k in np.flatnonzero(ratios):
            alpha = np.float32(ratios[k])
            # CCFL, eq. 3, and t_k <- t.
            state.models[k] = (1 - alpha) * state.models[k] + alpha * model
            state.updated[k] = state.epoch
        state.ratios[row] = ratios

    def mix(self, row: int) -> Vector:
        """Return sum_k u_k w_k, a client's personal model."""
        shares = self.state.shares[row].astype(np.float32)
        return mixture(self.state.models, shares)

    def adopt(self, row: int, shares: FloatArray) -> None:
        """Save an estimated mixture; the client's cluster has its largest share."""
        self.state.shares[row] = shares
        self.state.clusters[row] = int(shares.argmax())

    def lags(self, epochs: IntArray | int, stamp: int) -> FloatArray:
        """Return how far epochs are past a time stamp, in the unit of staleness."""
        by_cycles = self.settings.staleness == "cycles"
        unit = max(len(self.run.participants.present()), 1) if by_cycles else 1
        return np.atleast_1d(np.asarray(epochs) - stamp) / unit

    # Measures ------------------------------------------------------------------------

    def describe_upload(self, row: int, result: Result) -> dict[str, Json]:
        """Return the estimate, its divergence from the truth, and the update ratios."""
        found: dict[str, Json] = {"shares": self.state.shares[row].round(4).tolist()}
        ratios = self.state.ratios.pop(row, None)
        truth = self.true_mixture(row)
        if truth is not None and ratios is not None:
            found["kl"] = divergence(truth, self.state.shares[row])
        found["stale"] = ratios is None
        found["ratios"] = None if ratios is None else ratios.round(6).tolist()
        return found

    def true_mixture(self, row: int) -> FloatArray | None:
        """Return the true mixture of a client's uploaded model, where it is known."""
        if self.run.timeline is None or len(self.run.config.partition.turns) == 1:
            return None
        world = self.run.timeline.world(int(self.state.rounds[row]))
        return world.mixture[int(self.state.clients[row])]

    def describe_round(self, noted: Sequence[Mapping[str, Json]]) -> None:
        """Record means over the round's uploads, and the accuracy of the K models."""
        measures = self.run.record.measures
        for name in ("before", "kl"):
            known = [each[name] for each in noted if name in each]
            measures[name] = float(np.mean(known)) if known else None
        measures["stale"] = sum(bool(each["stale"]) for each in noted)
        moved = [each["ratios"] for each in noted if each["ratios"] is not None]
        measures["ratios"] = np.sum(moved, axis=0).tolist() if moved else None
        every = self.run.config.system.evaluate_every
        last = self.run.record.round == self.run.config.rounds
        tests = self.public.tests
        if tests and (last or self.run.record.round % every == 0):
            tested = tests.own(self.state.models)
            accuracies = [accuracy for _, accuracy in tested]
            measures["cluster_accuracies"] = accuracies
            measures["cluster_accuracy"] = float(np.mean(accuracies))
