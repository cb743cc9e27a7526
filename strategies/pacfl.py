"""PACFL: clusters once, before any training, by the subspaces of clients' samples.

Vahidian et al., "Efficient Distribution Similarity Identification in Clustered
Federated Learning via Principal Angles Between Client Data Subspaces" (AAAI 2023).
Each client sends some principal vectors of its samples. The server measures the angles
between those of any two clients, merges the nearest clients until all clusters are
farther apart than beta, and each cluster goes on by FedAvg.

Server keeps: the vectors of every client. Leaves the device: the trained model (d
floats); once, p vectors of the length of a sample for each label (p L z floats).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from cfl_flower.clustering.algorithms import grown
from cfl_flower.clustering.subspaces import subspace_angles
from cfl_flower.engine.method import ClusteredStrategy
from cfl_flower.errors import InvalidResultError
from cfl_flower.settings import Count, settings
from cfl_flower.state import ClusteredState, StrategySettings
from cfl_flower.types import (
    ClientId,
    FloatArray,
    IntArray,
    Plan,
    Result,
    Task,
)
from clients.pacfl import SUBSPACE

TOLERANCE = 1e-3
"""Largest difference from 1 of the length of a reported vector."""


@settings("strategy")
class PACFLSettings(StrategySettings):
    """PACFL's settings."""

    client: str = "clients.pacfl.PACFLClient"
    vectors: Count = 3
    """p, principal vectors of the samples of each label."""
    by_label: bool = True
    """Vectors of each label's samples, as in the code; or p of all samples together."""
    threshold: Annotated[float, Field(gt=0)] = 15.0
    """beta, the angle in degrees from which clusters are not merged."""


@dataclass
class PACFLState(ClusteredState):
    """PACFL's state; z is the length of a sample."""

    subspaces: FloatArray = field(default_factory=lambda: np.zeros((0, 1, 1)))
    """The principal vectors of each client, shape (n, v, z)."""

    def places(self) -> dict[str, FloatArray]:
        """Return what the principal vectors of each cluster's clients have in common.

        Shape (K, v, z): nobody's own, but for a client alone in its cluster.
        """
        found = np.zeros((len(self.models), *self.subspaces.shape[1:]))
        for cluster in np.unique(self.clusters).tolist():
            found[cluster] = common_vectors(self.subspaces[self.clusters == cluster])
        return {"subspaces": found}


def common_vectors(subspaces: FloatArray) -> FloatArray:
    """Return one vector, up to its sign, for those of m clients at each place: (v, z).

    The leading principal vector of these, of shape (m, v, z); zero where all lack one.
    """
    _, _, right = np.linalg.svd(subspaces.transpose(1, 0, 2), full_matrices=False)
    there = np.asarray(subspaces.any(axis=(0, 2)))
    return right[:, 0] * there[:, None]


def merge_clients(gaps: FloatArray, threshold: float) -> IntArray:
    """Return the cluster of each of n clients, from 0, by their distances, (n, n)."""
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    if len(gaps) < 2:
        return np.zeros(len(gaps), np.int64)
    # The distance of a merged cluster is the mean of both distances, as in the code.
    merges = linkage(squareform(gaps, checks=False), "weighted")
    # Algorithm 1, HC: merge while the nearest are no farther apart than beta.
    found = fcluster(merges, threshold, "distance")
    _, clusters = np.unique(found, return_inverse=True)
    return clusters.astype(np.int64)


class PACFL(ClusteredStrategy):
    """One clustering by principal angles, then FedAvg in each cluster."""

    Settings: ClassVar[type[StrategySettings]] = PACFLSettings
    State = PACFLState

    @property
    def shape(self) -> tuple[int, int]:
        """The number of a client's vectors, and their length."""
        dataset = self.run.config.dataset
        labels = dataset.classes if self.settings.by_label else 1
        return self.settings.vectors * labels, int(np.prod(dataset.shape))

    def hello(self, clients: Sequence[ClientId]) -> Plan:
        """Ask newcomers for their principal vectors."""
        tasks = [Task(client) for client in clients]
        return Plan(tasks, [], {SUBSPACE: True}, (int(np.prod(self.shape)),))

    def read_result(self, phase: str, result: Result) -> Result:
        """Read principal vectors, each of which has the length 1 or is missing."""
        if phase != "query":
            return result
        vectors = result.arrays[0].reshape(self.shape).astype(np.float64)
        lengths = np.linalg.norm(vectors, axis=1)
        if (np.minimum(lengths, abs(lengths - 1)) > TOLERANCE).any():
            detail = "principal vectors whose length is not 1"
            raise InvalidResultError("representation", detail)
        return replace(result, report=vectors)

    def welcome(self, server_round: int, newcomers: list[Result]) -> None:
        """Cluster the first clients; later ones join the clients nearest to them."""
        state = self.state
        known = len(state.clients)
        self.note(newcomers)
        groups = self.group()
        if not known:
            state.models = state.models * (int(groups.max()) + 1)
            state.join(newcomers, groups)
            return
        clusters = np.zeros(len(newcomers), np.int64)
        for group in np.unique(groups[known:]):
            # All clients are grouped anew, but those that have a cluster keep it.
            members = state.clusters[groups[:known] == group]
            cluster = len(state.models)
            if len(members):
                cluster = int(np.bincount(members).argmax())
            else:
                state.models = [*state.models, self.run.initial_model()]
            clusters[groups[known:] == group] = cluster
        state.join(newcomers, clusters)

    def note(self, newcomers: list[Result]) -> None:
        """Add what newcomers told to what all others did."""
        told = np.stack([newcomer.report for newcomer in newcomers])
        self.state.subspaces = grown(self.state.subspaces, told)

    def group(self) -> IntArray:
        """Return the group of everyone who told something, anew, from 0."""
        gaps = subspace_angles(self.state.subspaces)
        return merge_clients(gaps, self.settings.threshold)
