"""What CCFL and FedSoft share: K models of distributions that clients mix.

The K distributions are known to the server by a public set each, on which their models
are pre-trained. An upload of client m, which is a mixture u of the distributions, moves
model k by an update ratio: w_k <- (1 - alpha_k) w_k + alpha_k w_m (CCFL, eq. 3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from cfl_flower.data.own import Folder
from cfl_flower.data.public import (
    Samples,
    distributions,
    public_sets,
    sets_in_folders,
)
from cfl_flower.errors import ConfigError
from cfl_flower.learning.public_evaluation import Validation
from cfl_flower.learning.training import LocalTraining, pretrain
from cfl_flower.models import FlatModel
from cfl_flower.seeding import generator, seed_torch, torch_seed
from cfl_flower.settings import Count, NonNegative, require, settings
from cfl_flower.types import FloatArray, IntArray, Json, Result, Vector
from strategies.asynchronous import AsynchronousStrategy
from strategies.asynchronous_state import AsynchronousSettings, AsynchronousState
from strategies.base import Published, no_clusters

CLUSTER_TESTS = 2000
"""Test samples of each distribution on which the simulation tests its model."""


@settings("strategy")
class PublicSettings(AsynchronousSettings):
    """What the K pre-trained models are made of."""

    clusters: Count | None = None
    """K; null for the number of public sets, and no other number is allowed."""
    public: Count = 2000
    """Samples of each public set, drawn from those that simulated clients train on."""
    public_dir: str | None = None
    """A real server's own: a folder with a folder for each public set."""
    pretraining: LocalTraining = field(default_factory=LocalTraining)
    """How the K models are trained on their public sets before the first round."""


@settings("strategy")
class SoftSettings(PublicSettings):
    """The settings that CCFL and FedSoft share."""

    alpha: Annotated[float, Field(gt=0, le=1)] = 0.025
    """alpha_0, the largest update ratio."""
    a: NonNegative = 10.0
    """Damping of stale uploads: 1 up to b, 1 / (a * staleness + 1) from there."""
    b: NonNegative = 5.0
    """Staleness from which an upload is damped."""
    staleness: Literal["cycles", "epochs"] = "cycles"
    """Unit of staleness: epochs, as printed, or epochs over the number of clients."""


@dataclass
class SoftState(AsynchronousState):
    """The state; ``models`` are those of the K distributions.

    Attributes
    ----------
    updated : int array of shape (K,)
        t_k, the epoch of each model's last update.
    shares : array of shape (n, K)
        u, the last estimate of each client's mixture; even before the first.
    """

    updated: IntArray = field(default_factory=no_clusters)
    shares: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))


def damping(lags: FloatArray, a: float, b: float) -> FloatArray:
    """Return alpha_2k: 1 where the lag t_k - tau is below b, else 1 / (a lag + 1).

    Algorithm 1 of CCFL.

    Examples
    --------
    >>> damping(np.array([-3.0, 4.0, 5.0]), a=10, b=5).round(4).tolist()
    [1.0, 1.0, 0.0196]
    """
    late = 1 / (a * np.maximum(lags, 0) + 1)
    return np.where(lags < b, 1.0, late)


def divergence(truth: FloatArray, estimate: FloatArray) -> float:
    """Return KL(truth || estimate) of two mixtures; the estimate is kept from 0.

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
        count = len(self.public)
        asked = self.settings.clusters
        ok = asked is None or asked == count
        allowed = f"{count}, the number of public sets, or null"
        require(ok, "strategy.clusters", asked, allowed)
        return SoftState(
            [],
            no_clusters(),
            [self.initial_model()] * count,
            updated=np.zeros(count, np.int64),
            shares=np.zeros((0, count)),
        )

    def welcome(self, round: int, newcomers: list[Result]) -> None:
        """Take newcomers in with the mean model, as an even mixture."""
        state = self.state
        if not state.clients:
            state.models = self.pretrained()
        even = np.full((len(newcomers), len(state.models)), 1 / len(state.models))
        state.shares = np.concatenate([state.shares, even])
        super().welcome(round, newcomers)

    def pretrained(self) -> list[Vector]:
        """Train the common initial model on each public set."""
        settings, seed = self.settings.pretraining, self.config.seed
        model, initial = FlatModel(self._network()), self.initial_model()
        key, trained = "strategy.pretraining", list[Vector]()
        for number, samples in enumerate(self.public):
            seed_torch(torch_seed(seed, "pretraining", 0, number))
            rng = generator(seed, "pretraining", 0, number)
            trained.append(
                pretrain(model, initial, samples.x, samples.y, settings, rng, key)
            )
        return trained

    def update(self, row: int, model: Vector, ratios: FloatArray) -> None:
        """Move the K models towards an uploaded one: CCFL, eq. 3.

        Parameters
        ----------
        row : int
        model : Vector, shape (d,)
        ratios : array of shape (K,)
            alpha_k; a model with 0 stays as it is, and as old as it is.
        """
        state = self.state
        for k in np.flatnonzero(ratios):
            alpha = np.float32(ratios[k])
            state.models[k] = (1 - alpha) * state.models[k] + alpha * model
            state.updated[k] = state.epoch
        self._ratios[row] = ratios

    def mix(self, row: int) -> Vector:
        """Return sum_k u_k w_k, a client's personal model."""
        shares = self.state.shares[row].astype(np.float32)
        mixed: Vector = np.zeros_like(self.state.models[0])
        for share, model in zip(shares, self.state.models, strict=True):
            mixed += share * model
        return mixed

    def adopt(self, row: int, shares: FloatArray) -> None:
        """Keep an estimate; a client's cluster is the one it holds most of."""
        self.state.shares[row] = shares
        self.state.clusters[row] = int(shares.argmax())

    def lags(self, epochs: IntArray | int, stamp: int) -> FloatArray:
        """Return how far epochs are past a time stamp, in the unit of staleness."""
        by_cycles = self.settings.staleness == "cycles"
        unit = max(len(self.present), 1) if by_cycles else 1
        return np.atleast_1d(np.asarray(epochs) - stamp) / unit

    # The server's samples ------------------------------------------------------------

    @cached_property
    def public(self) -> list[Samples]:
        """The public sets.

        Raises
        ------
        ConfigError
            With devices' own data and no `public_dir`; in a simulation, if that has not
            as many sets as the data have distributions.
        """
        config, folder = self.config, self.settings.public_dir
        if folder is not None:
            sets = sets_in_folders(config.dataset, str(Path(config.data_dir, folder)))
            if self.timeline is not None:
                count = len(distributions(config.partition, self.timeline))
                allowed = f"a folder with {count} sets, one for each distribution"
                require(len(sets) == count, "strategy.public_dir", folder, allowed)
            return sets
        if isinstance(config.dataset, Folder):
            raise ConfigError(
                "strategy.public_dir=null is not allowed with devices' own data; use a "
                "folder on the server with a folder of samples for each distribution"
            )
        train_pool = config.dataset.load(config.data_dir)[0]
        found = distributions(config.partition, config.timeline)
        size, seed = self.settings.public, config.seed
        return public_sets(found, train_pool, size, seed, "public")

    @cached_property
    def validation(self) -> Validation:
        """The public sets, to look at models with."""
        return Validation(self._network(), self.public)

    @cached_property
    def _cluster_tests(self) -> Validation | None:
        """Test samples of each distribution, for what a simulation measures."""
        config = self.config
        if self.timeline is None:
            return None
        pool = config.dataset.load(config.data_dir)[1]
        found = distributions(config.partition, self.timeline)
        seed = config.seed
        sets = public_sets(found, pool, CLUSTER_TESTS, seed, "cluster-tests")
        return Validation(self._network(), sets)

    def _network(self) -> Any:
        dataset = self.config.dataset
        return self.config.model.build(dataset.shape, dataset.classes)

    # Measures ------------------------------------------------------------------------

    def __init__(self, *args: Any, **options: Any) -> None:
        self._ratios: dict[int, FloatArray] = {}
        super().__init__(*args, **options)

    def measure_upload(self, row: int, result: Result) -> dict[str, Json]:
        """Return the estimate, its divergence from the truth, and what it moved."""
        found: dict[str, Json] = {"shares": self.state.shares[row].round(4).tolist()}
        ratios = self._ratios.pop(row, None)
        truth = self.true_mixture(row)
        if truth is not None and ratios is not None:
            found["kl"] = divergence(truth, self.state.shares[row])
        found["stale"] = ratios is None
        found["ratios"] = None if ratios is None else ratios.round(6).tolist()
        found["server_passes"] = 0 if ratios is None else self.server_passes(ratios)
        return found

    def server_passes(self, ratios: FloatArray) -> int:
        """Return what an upload costs the server, in forward passes of one sample."""
        del ratios
        return 0

    def true_mixture(self, row: int) -> FloatArray | None:
        """Return what a client's uploaded model was trained on, where it is known."""
        if self.timeline is None or len(self.config.partition.turns) == 1:
            return None
        world = self.timeline.world(int(self.state.rounds[row]))
        mixture: FloatArray = world.mixture[int(self.state.clients[row])]
        return mixture

    def measure_round(self, said: Sequence[Mapping[str, Json]]) -> None:
        """Note means over the round's uploads, and the accuracy of the K models."""
        measures = self.record.measures
        for name in ("before", "kl"):
            known = [each[name] for each in said if name in each]
            measures[name] = float(np.mean(known)) if known else None
        measures["stale"] = sum(bool(each["stale"]) for each in said)
        moved = [each["ratios"] for each in said if each["ratios"] is not None]
        measures["ratios"] = np.sum(moved, axis=0).tolist() if moved else None
        measures["client_passes"] = sum(each["passes"] for each in said)
        measures["server_passes"] = sum(each["server_passes"] for each in said)
        every = self.config.system.evaluate_every
        last = self.record.round == self.config.rounds
        if self._cluster_tests and (last or self.record.round % every == 0):
            tested = self._cluster_tests.own(self.state.models)
            accuracies = [accuracy for _, accuracy in tested]
            measures["cluster_accuracies"] = accuracies
            measures["cluster_accuracy"] = float(np.mean(accuracies))
