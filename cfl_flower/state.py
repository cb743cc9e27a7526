"""What a method is told, and what of it survives a round."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from flwr.client import NumPyClient

from cfl_flower.learning.aggregation import Memory
from cfl_flower.learning.selection import History
from cfl_flower.learning.training import LocalTraining
from cfl_flower.settings import locate, require, require_one_of
from cfl_flower.types import ClientId, IntArray, Vector


@dataclass(frozen=True)
class StrategySettings:
    """What every method can be told.

    Attributes
    ----------
    client : str
        Dotted path of the NumPyClient that does this method's tasks.
    weighting : {"samples", "plain"}
        Weights of a cluster's mean: the clients' training samples, or all alike.
    sampling : {"all", "clusters"}
        Participants are drawn from all clients, or M/K from each cluster (Fielding).
    local : LocalTraining
        The local optimiser.
    """

    client: str = "clients.base.ClusteredClient"
    weighting: str = "samples"
    sampling: str = "all"
    local: LocalTraining = field(default_factory=LocalTraining)

    def __post_init__(self) -> None:
        require_one_of("strategy.weighting", self.weighting, ("samples", "plain"))
        require_one_of("strategy.sampling", self.sampling, ("all", "clusters"))
        client = locate(self.client)
        ok = isinstance(client, type) and issubclass(client, NumPyClient)
        require(ok, "strategy.client", self.client, "the path of a NumPyClient")

    def check_run(self, clients: int) -> None:
        """Raise `ConfigError` for settings that do not fit the number of clients."""


@dataclass
class ClusteredState:
    """Everything that survives a round; clients are rows, in the order of joining.

    Attributes
    ----------
    clients : list of ClientId
    clusters : int array of shape (n,)
        The cluster of each client.
    models : list of Vector
        One per cluster.
    memories : dict
        What the server optimiser remembers of models, by their digests.
    history : History
        What the selection knows of clients.
    """

    clients: list[ClientId]
    clusters: IntArray
    models: list[Vector]
    memories: dict[str, Memory] = field(default_factory=dict, kw_only=True)
    history: History = field(default_factory=History, kw_only=True)

    def __post_init__(self) -> None:
        # A checkpoint gives the inner dataclass back as a mapping.
        if isinstance(self.history, dict):
            self.history = History(**self.history)

    @property
    def sizes(self) -> IntArray:
        """The number of members of each cluster, shape (K,)."""
        return np.bincount(self.clusters, minlength=len(self.models))


def no_clusters() -> IntArray:
    """Return the clusters of no clients."""
    return np.zeros(0, np.int64)
