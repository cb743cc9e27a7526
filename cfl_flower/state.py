"""The settings that every method has, and the state that survives a round."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
from flwr.client import NumPyClient
from pydantic import Field

from cfl_flower.building import locate
from cfl_flower.clustering.algorithms import mixing_matrix
from cfl_flower.clustering.representations import digest
from cfl_flower.learning.aggregation import Memory, mean_model, mix_models
from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.learning.selection import History
from cfl_flower.privacy.accounting import PrivacyLoss
from cfl_flower.settings import Natural, Positive, require, settings
from cfl_flower.types import (
    ClientId,
    FloatArray,
    IntArray,
    Result,
    Vector,
    is_client_id,
)

Weighting: TypeAlias = Literal["samples", "plain"]
Sampling: TypeAlias = Literal["all", "clusters"]
Robust: TypeAlias = Literal[
    "none", "clip", "median", "trimmed", "krum", "multikrum", "bulyan"
]


@settings("strategy")
class StrategySettings:
    """The settings that every method has."""

    needs_extractor: ClassVar[bool] = False
    """Whether the method does less where a network is a classifier and nothing else."""
    idle_unless: ClassVar[dict[str, str]] = {
        "robust_length": "robust=clip",
        "robust_share": "robust=trimmed|krum|multikrum|bulyan",
        "fine_tuning_rate": "fine_tuning",
        "local.epochs": "local.steps=none",
    }
    """Settings without effect unless another one has one of some values, as in
    ``"other=a|b"``, or, as in ``"other"``, any but zero, false, none and nothing."""
    waits: ClassVar[str] = ""
    """The setting that is the number of rounds before the method is itself."""

    client: str = "clients.base.ClusteredClient"
    """Dotted path of the NumPyClient that does this method's tasks."""
    weighting: Weighting = "samples"
    """Weights of a cluster's mean: the clients' training samples, or all alike."""
    sampling: Sampling = "all"
    """Participants are drawn from all clients, or M/K from each cluster (Fielding)."""
    weight_cap: Positive | None = 5.0
    """A result weighs at most this multiple of the median number of samples: of those
    who trained the same model, or, in sums, of the participants of the round before.
    null for no bound."""
    robust: Robust = "none"
    """Defence against a malicious participant, among those who trained the same model:
    `clip` shortens long updates; the others replace their mean by Flower's FedMedian,
    FedTrimmedAvg, Krum, MultiKrum or Bulyan."""
    robust_length: Positive = 1.5
    """The length that `clip` leaves, as a multiple of the median one: of those who
    trained the same model, or of all participants, whichever is smaller."""
    robust_share: Annotated[float, Field(gt=0, lt=0.5)] = 0.2
    """Share of malicious participants that the other rules allow for, at least one."""
    local: LocalTraining = field(default_factory=LocalTraining)
    """The local optimiser."""
    fine_tuning: Natural = 0
    """Epochs for which a client trains its model on its own data before each test
    (Collins et al., NeurIPS 2022); a method with personal classifiers trains only the
    classifier. Nothing of it is kept or sent."""
    fine_tuning_rate: Positive = 0.01
    """Learning rate of fine-tuning; the rest is as in `local`."""
    label_shares: bool = False
    """Whether a client adds the logarithm of its own label shares, among its training
    samples, to the outputs of a model before each test (as Menon et al., ICLR 2021,
    adjust logits). Nothing is trained or sent."""
    unlabelled: bool = False
    """Whether a test is also of the model that its samples choose without labels:
    `accuracy_unlabelled`. All models go with it, and none is fine-tuned for it."""

    def __post_init__(self) -> None:
        client = locate(self.client, "strategy.client")
        ok = isinstance(client, type) and issubclass(client, NumPyClient)
        require(ok, "strategy.client", self.client, "the path of a NumPyClient")
        adapts = getattr(client, "fine_tunes", False)
        chooses = hasattr(client, "test_unlabelled")
        able = {"fine_tuning": adapts, "label_shares": adapts, "unlabelled": chooses}
        for name, ok in able.items():
            value = getattr(self, name)
            off = "0" if name == "fine_tuning" else "false"
            rule = f"{off}: {self.client} cannot do that for a test"
            require(ok or not value, f"strategy.{name}", value, rule)

    def weight(self, result: Result) -> float:
        """Return the weight of a result in a mean."""
        return float(result.num_examples) if self.weighting == "samples" else 1.0

    def check_run(self, clients: int) -> None:
        """Raise `ConfigError` for settings that do not fit the number of clients."""

    def check_privacy(self) -> None:
        """Raise `ConfigError` where ``privacy=`` accounts for less than is sent."""

    def check_secure_sums(self) -> None:
        """Raise `ConfigError` for settings with which single models are sent."""


@dataclass
class ClusteredState:
    """Everything that survives a round; clients are rows, in the order of joining."""

    clients: list[ClientId]
    clusters: IntArray
    """The cluster of each client, shape (n,)."""
    models: list[Vector]
    """One per cluster."""
    memories: dict[str, Memory] = field(default_factory=dict, kw_only=True)
    """Memory of the server optimiser, by the digests of models."""
    history: History = field(default_factory=History, kw_only=True)
    """Knowledge of the selection about clients."""
    privacy: PrivacyLoss = field(default_factory=PrivacyLoss, kw_only=True)
    """Privacy that clients have lost, with ``privacy=``."""
    typical_count: int | float = field(default=0, kw_only=True)
    """The median number of samples that clients have told last; 0 if none has."""
    typical_report: float = field(default=0.0, kw_only=True)
    """The median length of what clients report about their data; 0 if none did."""
    led: dict[ClientId, float] = field(default_factory=dict, kw_only=True)
    """To how many re-clusterings a client's reports led, less those that rounds since
    have made good."""
    typical_lengths: list[float] = field(default_factory=list, kw_only=True)
    """The median length of participants' updates in the last round with secure sums,
    for each array of a result."""
    lost_sums: list[str] = field(default_factory=list, kw_only=True)
    """The digests of models of which real devices' secure sums were lost."""
    empty: list[ClientId] = field(default_factory=list, kw_only=True)
    """The clients that said last that they have no samples in the next round."""

    def check(self) -> None:
        """Raise `ValueError` unless clients and clusters are such."""
        count = len(self.clients)
        if not all(map(is_client_id, self.clients)) or len(set(self.clients)) < count:
            raise ValueError("clients are not the ids of different clients")
        # A client whose model is its own is a cluster, too.
        most = max(count, len(self.models))
        clusters = np.asarray(self.clusters)
        known = clusters.shape == (count,) and clusters.dtype == np.int64
        if not known or not set(clusters.tolist()) <= set(range(most)):
            raise ValueError(f"clusters are not {count} numbers from 0 to {most - 1}")

    def snapshot(self) -> Self:
        """Return the state as it is now, whatever is done to this one later.

        Models and other arrays in lists are replaced and never written, so that they
        are shared.
        """
        now = {each.name: _snapshot(getattr(self, each.name)) for each in fields(self)}
        return replace(self, **now)

    def join(self, newcomers: Sequence[Result], clusters: IntArray) -> None:
        """Append newcomers, with a cluster for each, shape (m,)."""
        self.clients = self.clients + [result.client for result in newcomers]
        self.clusters = np.append(self.clusters, clusters)

    def recluster(self, clusters: IntArray) -> None:
        """Put all clients into new clusters, shape (n,).

        The model of a new cluster is the mean of its members' previous models
        (Fielding, Algorithm 2, line 10).
        """
        self.mix(mixing_matrix(self.clusters, clusters, len(self.models)))
        self.clusters = clusters

    def mix(self, mixing: FloatArray) -> None:
        """Replace the models by mixtures of them: a share of each old one in each row.

        ``mixing`` has shape (K_new, K_old).
        """
        fresh = mix_models(self.models, mixing)
        for model, shares in zip(fresh, mixing, strict=True):
            own = np.flatnonzero(shares)
            self.hand_on([self.models[k] for k in own], shares[own], model)
        self.models = fresh

    def hand_on(
        self, origins: Sequence[Vector], shares: FloatArray, model: Vector
    ) -> None:
        """Hand on what the server optimiser remembers of models to one made of them.

        That is their mean, weighted by ``shares``, shape (m,); models of which it
        remembers nothing have no part in it. One that is an origin itself keeps its
        own.
        """
        pairs = zip(map(digest, origins), shares.tolist(), strict=True)
        known = [(self.memories[n], share) for n, share in pairs if n in self.memories]
        if known and digest(model) not in self.memories:
            memories, weights = zip(*known, strict=True)
            parts = zip(*memories, strict=True)
            mean = [mean_model(list(part), list(weights)) for part in parts]
            self.memories[digest(model)] = mean

    def places(self) -> dict[str, FloatArray]:
        """Return what tells clusters apart beside their models, for newcomers.

        A client's `find_cluster` reads it. Where there is a row for each model, that of
        one without a place of its own is NaN. Empty where losses tell.
        """
        return {}

    def rows(self, clients: Iterable[ClientId]) -> IntArray:
        """Return the rows of clients in the state's arrays."""
        place = {client: row for row, client in enumerate(self.clients)}
        return np.array([place[client] for client in clients], np.int64)

    @property
    def sizes(self) -> IntArray:
        """The number of members of each cluster, shape (K,)."""
        return np.bincount(self.clusters, minlength=len(self.models))


def _snapshot(value: Any) -> Any:
    """Return a copy of an array or a container; what is in a container is shared."""
    if isinstance(value, np.ndarray | list | dict):
        return value.copy()
    if is_dataclass(value) and not isinstance(value, type):
        inner = {each.name: getattr(value, each.name) for each in fields(value)}
        return replace(value, **{name: _snapshot(own) for name, own in inner.items()})
    return value


def no_clusters() -> IntArray:
    """Return the clusters of no clients."""
    return np.zeros(0, np.int64)
