"""Oracle: clusters by the true concept of each client. The upper reference.

In a simulation the drift schedule says which concept each client follows in the next
round. When that changes the clients are clustered by it. New concepts' models are
warm-started as in Fielding's global re-clustering, so that only the clusters differ.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cfl_flower.clustering.algorithms import mixing_matrix
from cfl_flower.communication.results import Results
from cfl_flower.engine.method import ClusteredStrategy, Disclosure, Supports
from cfl_flower.errors import ConfigError
from cfl_flower.settings import settings
from cfl_flower.state import (
    ClusteredState,
    Sampling,
    StrategySettings,
    Weighting,
    no_clusters,
)
from cfl_flower.types import IntArray, Result


@settings("strategy")
class OracleSettings(StrategySettings):
    """Fielding's weighting and sampling, so that only the clusters differ."""

    weighting: Weighting = "plain"
    sampling: Sampling = "clusters"


@dataclass
class OracleState(ClusteredState):
    """The state of the oracle."""

    concepts: IntArray = field(default_factory=no_clusters)
    """The true concept of each cluster, shape (K,)."""


class Oracle(ClusteredStrategy):
    """One cluster for each concept that exists."""

    State = OracleState
    Settings = OracleSettings
    supports = Supports(one_concept=False)
    discloses = Disclosure()

    def initial_state(self) -> Any:
        """Return the state before any client is known."""
        if self.run.timeline is None:
            raise ConfigError(
                "strategy=oracle needs a simulated stream, whose concepts are known; "
                "use another strategy on real devices, or give a strategy for an app "
                "of your own concepts=lambda server_round: {node: cluster, ...}"
            )
        return OracleState([], no_clusters(), [])

    def welcome(self, server_round: int, newcomers: list[Result]) -> None:
        """Put each newcomer into the cluster of its concept."""
        super().welcome(server_round, newcomers)
        state = self.state
        truth = self._truth(server_round)
        fresh = np.setdiff1d(truth, state.concepts)
        state.concepts = np.append(state.concepts, fresh)
        state.models = state.models + [self.run.initial_model()] * len(fresh)
        state.clusters = (truth[:, None] == state.concepts).argmax(axis=1)

    def absorb_evaluate(self, server_round: int, results: Results) -> None:
        """Cluster by the concepts of the next round if they have changed."""
        state = self.state
        truth = self._truth(server_round + 1)
        elsewhere = truth != state.concepts[state.clusters]
        self.run.record.moved = int(np.count_nonzero(elsewhere))
        self.run.record.reclustered = self.run.record.moved > 0
        if self.run.record.reclustered:
            known = state.concepts
            state.concepts, clusters = np.unique(truth, return_inverse=True)
            # Fielding, Algorithm 2, lines 6 to 10, but a concept that goes on keeps its
            # model, whoever comes and goes.
            members = mixing_matrix(state.clusters, clusters, len(state.models))
            same = state.concepts[:, None] == known
            state.mix(np.where(same.any(axis=1, keepdims=True), same, members))
            state.clusters = clusters

    def _truth(self, server_round: int) -> IntArray:
        truth = self.run.true_concepts(server_round)
        assert truth is not None
        return truth
