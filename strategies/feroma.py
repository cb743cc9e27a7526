"""FEROMA: each client starts from a mixture of the models whose data were like its own.

Li, Fenoglio et al., "Federated Learning with Profile Mapping under Distribution Shifts
and Drifts" (ICLR 2026, arXiv 2602.07671); its steps and constants are those of the
authors' code. FedAvg for some rounds; then, in each round, a participant's profile is
matched with those behind the last round's trained models, whatever clients they are of,
and it trains their mean, weighted by samples over the distances of the profiles.

Server keeps: the trained models of the last participants and their profiles, the model
by which all profile their data. Leaves the device: the trained model (d floats); in
each round, of all clients, the profile (2 L (L + 1) floats).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import numpy as np

from cfl_flower.clustering.profiles import matching_shares, profile_distances
from cfl_flower.communication.results import Results
from cfl_flower.engine.method import Description, Published, Supports
from cfl_flower.learning.aggregation import mix_models
from cfl_flower.settings import Count, settings
from cfl_flower.types import FloatArray, Plan, Result, Task
from strategies.families.profiles import ProfileSettings, ProfileState, ProfileStrategy


@settings("strategy")
class FeromaSettings(ProfileSettings):
    """FEROMA's settings."""

    warmup: Count = 5


@dataclass
class FeromaState(ProfileState):
    """FEROMA's state; ``models`` are those that the last participants trained."""

    profiles: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    """The profile of each client's data, shape (n, G z)."""
    weights: FloatArray = field(default_factory=partial(np.zeros, 0))
    """The weight of each model in a mean, shape (K,)."""


class Feroma(ProfileStrategy):
    """FedAvg, then a mixture for each participant."""

    Settings = FeromaSettings
    State = FeromaState
    published = Published("the last participants' models, one for each profile")
    supports = Supports(server_optimizer=False)
    halves: ClassVar[int] = 3
    follows: ClassVar[bool] = True

    def welcome(self, server_round: int, newcomers: list[Result]) -> None:
        """Give newcomers the model whose data are most like theirs."""
        state = self.state
        super().welcome(server_round, newcomers)
        if state.profiler:
            profiles = [newcomer.report for newcomer in newcomers]
            state.profiles = np.concatenate([state.profiles, profiles])
            self.serve_nearest()

    def plan_train(self, server_round: int) -> Plan:
        """Send each participant its mixture of the last round's models."""
        state = self.state
        if server_round <= self.settings.warmup:
            return super().plan_train(server_round)
        if not state.profiler:
            self.begin_matching(server_round)
        rows = self.run.participants.choose(server_round)
        gaps = profile_distances(state.profiles[rows], state.sources, state.ranges)
        # Shares in proportion to samples over distances of profiles.
        starts = mix_models(state.models, matching_shares(gaps, state.weights))
        tasks = [Task(state.clients[row], (i,)) for i, row in enumerate(rows)]
        return Plan(tasks, starts, {}, reply=(len(state.models[0]),))

    def begin_matching(self, server_round: int) -> None:
        """Ask all clients for profiles; the common model is of their mean.

        That is the profile, too, of those that do not answer.
        """
        state = self.state
        rows, profiles = self.ask_profiles(server_round)
        state.profiles = np.repeat(state.sources, len(state.clients), axis=0)
        state.profiles[rows] = profiles
        state.weights = np.ones(1)

    def absorb_train(self, server_round: int, results: Results) -> None:
        """Keep the trained models with the profiles of the data that they are of."""
        state = self.state
        if not state.profiler:
            super().absorb_train(server_round, results)
            return
        rows = state.rows(result.client for result in results)
        state.models = [result.arrays[0] for result in results]
        state.sources = state.profiles[rows]
        state.weights = np.array([self.settings.weight(result) for result in results])
        self.serve_nearest()

    def serve_nearest(self) -> None:
        """Let every client be served the model whose data are most like its own."""
        state = self.state
        gaps = profile_distances(state.profiles, state.sources, state.ranges)
        state.clusters = gaps.argmin(axis=1)

    def absorb_evaluate(self, server_round: int, results: Results) -> None:
        """Take in the profiles of the next round's data."""
        told = [result for result in results if result.report is not None]
        if told:
            rows = self.state.rows(result.client for result in told)
            self.state.profiles[rows] = np.stack([result.report for result in told])

    def describe(self) -> Description:
        """Say that no model is a new version of the one with its number."""
        return Description(comparable=not self.state.profiler)
