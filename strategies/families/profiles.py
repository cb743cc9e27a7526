"""The strategy of FLUX and FEROMA: clients' data are known by profiles.

After some rounds of FedAvg the common model is kept as the one by which all clients
profile their data from then on (`clustering.profiles`). Each model is known by the
label-free part of a profile, so that a client without labels finds the nearest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import ClassVar

import numpy as np

from cfl_flower.clustering.profiles import LABEL_FREE, group_ranges
from cfl_flower.clustering.representations import parse_vector
from cfl_flower.engine.method import ClusteredStrategy, with_more
from cfl_flower.settings import Count, settings
from cfl_flower.state import ClusteredState, StrategySettings
from cfl_flower.types import ClientId, FloatArray, IntArray, Plan, Result, Task, Vector
from clients.profile import ProfileRequest


@settings("strategy")
class ProfileSettings(StrategySettings):
    """The settings that both methods have."""

    waits = "warmup"
    reads_extractor: ClassVar[bool] = True
    """Whether features are taken from the extractor alone."""

    client: str = "clients.profile.ProfileClient"
    warmup: Count = 3
    """Rounds of FedAvg before profiles say something."""
    unlabelled: bool = True
    """Whether clients are also tested with the model that the profile of their test
    samples selects, without labels: `accuracy_unlabelled`. All models go with each
    test, and none of them is fine-tuned for it, which needs labels."""


@dataclass
class ProfileState(ClusteredState):
    """The state that both methods have."""

    profiler: list[Vector] = field(default_factory=list)
    """The model by which data are profiled; none before there are profiles."""
    ranges: FloatArray = field(default_factory=lambda: np.ones(0))
    """The range of each group of a profile, shape (G,), as of the first profiles."""
    sources: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    """The profile of the data behind each model, shape (K, G z)."""

    def label_free(self, profiles: FloatArray) -> FloatArray:
        """Return the part of profiles, (n, G z), that needs no labels, (n, 2 z)."""
        return profiles[:, : LABEL_FREE * profiles.shape[1] // len(self.ranges)]

    def places(self) -> dict[str, FloatArray]:
        """Return what inputs are compared with and by, once there are any profiles."""
        if not self.profiler:
            return {}
        landmarks = self.label_free(self.sources)
        compared = {"ranges": self.ranges[:LABEL_FREE], "landmarks": landmarks}
        return {**compared, "profiler": self.profiler[0]}


class ProfileStrategy(ClusteredStrategy):
    """Asks for profiles, and has models tested that they select."""

    Settings: ClassVar[type[StrategySettings]] = ProfileSettings
    State: ClassVar[type[ProfileState]] = ProfileState
    halves: ClassVar[int] = 0
    """Number of random halves of its samples that a client profiles; 0 for all."""
    follows: ClassVar[bool] = False
    """Whether clients report a profile of the next round's data with each test."""

    @property
    def shape(self) -> tuple[int, int]:
        """G groups of a profile, of z numbers, which are L."""
        classes = self.run.config.dataset.classes
        return LABEL_FREE * (classes + 1), classes

    # Profiles ------------------------------------------------------------------------

    def hello(self, clients: Sequence[ClientId]) -> Plan:
        """Ask newcomers for their sizes, and for profiles once there are any."""
        known = self.state.profiler
        return self._profile_plan(clients) if known else super().hello(clients)

    def _profile_plan(self, clients: Sequence[ClientId]) -> Plan:
        model = (self.state.profiler or self.state.models)[0]
        request = ProfileRequest(True, self.halves)
        tasks = [Task(each, (0,)) for each in clients]
        return Plan(tasks, [model], request.to_config())

    def read_result(self, phase: str, result: Result) -> Result:
        """Read the profile that was asked for, with a hello or a test."""
        asked = phase == "query" or (phase == "evaluate" and self.follows)
        return self.read_profile(result) if asked and self.state.profiler else result

    def read_profile(self, result: Result) -> Result:
        """Return a result whose report is a profile, shape (G z,)."""
        told = result.metrics.get("profile")
        profile = parse_vector(told, prod(self.shape), "profile")
        return replace(result, report=profile)

    def ask_profiles(self, server_round: int) -> tuple[IntArray, FloatArray]:
        """Ask all clients for profiles; at first of the common model, which they keep.

        Returns the rows of those who answered, (m,), and their profiles, (m, G z).
        """
        state = self.state
        answers = self.run.ask(server_round, self._profile_plan(state.clients))
        answers = self.run.read("query", answers, self.read_profile)
        self.run.require_any(answers, "query")
        profiles = np.stack([answer.report for answer in answers])
        if not state.profiler:
            state.profiler = state.models[:1]
            state.ranges = group_ranges(profiles, self.shape[0])
            state.sources = profiles.mean(axis=0, keepdims=True)
        return state.rows(answer.client for answer in answers), profiles

    # Tests ---------------------------------------------------------------------------

    def plan_evaluate(self, server_round: int, test: bool) -> Plan:
        """Test the served model; ask for profiles."""
        plan = super().plan_evaluate(server_round, test)
        state = self.state
        if not (state.profiler and self.follows):
            return plan
        tasks = plan.tasks or [Task(client) for client in state.clients]
        request = ProfileRequest(True, self.halves)
        asked = replace(plan, tasks=tasks, config=request.to_config())
        return with_more(asked, state.profiler)

    def unlabelled_choice(self) -> list[Vector]:
        """Return the models, and what profiles are compared with and by."""
        places = self.state.places()
        models = super().unlabelled_choice()
        if not (places and models):
            return []
        known = np.append(places["ranges"], places["landmarks"])
        return [*models, known.astype(np.float32), places["profiler"]]
