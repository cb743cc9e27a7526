"""The strategy of FLUX and FEROMA: clients' data are known by profiles.

After some rounds of FedAvg the common model is kept as the one by which all clients
profile their data from then on (`clustering.profiles`). Each model is known by the
label-free part of a profile, so that a client without labels finds the nearest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from cfl_flower.clustering.profiles import (
    LABEL_FREE,
    group_ranges,
    profile_distances,
)
from cfl_flower.clustering.representations import parse_vector
from cfl_flower.engine.method import ClusteredStrategy
from cfl_flower.settings import Count, settings
from cfl_flower.state import ClusteredState, StrategySettings
from cfl_flower.types import ClientId, FloatArray, IntArray, Plan, Result, Task, Vector
from clients.profile import ProfileRequest


@settings("strategy")
class ProfileSettings(StrategySettings):
    """The settings that both methods have."""

    client: str = "clients.profile.ProfileClient"
    warmup: Count = 3
    """Rounds of FedAvg before profiles say something."""
    unlabelled: bool = True
    """Clients are also tested with the model that the profile of their test samples,
    without labels, selects: `accuracy_unlabelled`. All models go with each test, and
    none of them is fine-tuned for it, which needs labels."""


@dataclass
class ProfileState(ClusteredState):
    """The state that both methods have."""

    profiler: list[Vector] = field(default_factory=list)
    """The model by which data are profiled; none before there are profiles."""
    ranges: FloatArray = field(default_factory=lambda: np.ones(0))
    """The range of each group of a profile, shape (G,), as of the first profiles."""
    landmarks: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    """The label-free part of the profile of each model's data, shape (K, 2 z)."""

    def places(self) -> dict[str, FloatArray]:
        """Return the landmarks with what they are compared by, once there are any."""
        found = {"ranges": self.ranges[:LABEL_FREE], "landmarks": self.landmarks}
        return {**found, "profiler": self.profiler[0]} if self.profiler else {}


class ProfileStrategy(ClusteredStrategy):
    """Asks for profiles, and has models tested that they select."""

    Settings: ClassVar[type[StrategySettings]] = ProfileSettings
    State: ClassVar[type[ProfileState]] = ProfileState
    halves: ClassVar[int] = 0
    """Number of random halves of its samples that a client profiles; 0 for all."""
    follows: ClassVar[bool] = False
    """Whether clients report a profile of the next round's data with each test."""

    @property
    def classes(self) -> int:
        """L, and as many numbers in a group of a profile."""
        return int(self.run.config.dataset.classes)

    @property
    def groups(self) -> int:
        """G, the number of groups of a profile."""
        return LABEL_FREE * (self.classes + 1)

    def label_free(self, profiles: FloatArray) -> FloatArray:
        """Return the part of profiles, (n, G z), that needs no labels, (n, 2 z)."""
        return profiles[:, : LABEL_FREE * self.classes]

    def nearest_by_inputs(self, profiles: FloatArray) -> IntArray:
        """Return the model whose data's inputs are most like each profile's, (n,)."""
        state = self.state
        inputs = self.label_free(profiles)
        ranges = state.ranges[:LABEL_FREE]
        gaps = profile_distances(inputs, state.landmarks, ranges)
        nearest: IntArray = gaps.argmin(axis=1)
        return nearest

    # Profiles ------------------------------------------------------------------------

    def hello(self, clients: Sequence[ClientId]) -> Plan:
        """Ask newcomers for their sizes, and for profiles once there are any."""
        profiler = self.state.profiler
        if not profiler:
            return super().hello(clients)
        return self._profile_plan(clients, profiler[0])

    def _profile_plan(self, clients: Sequence[ClientId], model: Vector) -> Plan:
        request = ProfileRequest(True, self.halves)
        return Plan(
            [Task(each, (0,)) for each in clients], [model], request.to_config()
        )

    def read_result(self, phase: str, result: Result) -> Result:
        """Read the profile that was asked for, with a hello or a test."""
        asked = phase == "query" or (phase == "evaluate" and self.follows)
        return self.read_profile(result) if asked and self.state.profiler else result

    def read_profile(self, result: Result) -> Result:
        """Return a result whose report is a profile, shape (G z,)."""
        length = self.groups * self.classes
        profile = parse_vector(result.metrics.get("profile"), length, "profile")
        return replace(result, report=profile)

    def begin(self, server_round: int) -> tuple[IntArray, FloatArray]:
        """Make the common model the profiling one, and ask all clients for profiles.

        Returns the rows of those who answered, (m,), and their profiles, (m, G z).
        """
        state = self.state
        plan = self._profile_plan(state.clients, state.models[0])
        answers = self.run.ask(server_round, plan)
        answers = self.run.read("query", answers, self.read_profile)
        self.run.require_any(answers, "query")
        profiles = np.stack([answer.report for answer in answers])
        state.profiler = [state.models[0]]
        state.ranges = group_ranges(profiles, self.groups)
        return state.rows(answer.client for answer in answers), profiles

    # Tests ---------------------------------------------------------------------------

    def plan_evaluate(self, server_round: int, test: bool) -> Plan:
        """Test the served model, and the one that profiles select; ask for profiles."""
        plan = super().plan_evaluate(server_round, test)
        state = self.state
        unlabelled = test and self.settings.unlabelled
        if not state.profiler or not (unlabelled or self.follows):
            return plan
        count = len(state.models)
        known = np.append(state.ranges[:LABEL_FREE], state.landmarks)
        models = [*state.models, known.astype(np.float32), state.profiler[0]]
        beside = tuple(range(count + 2)) if unlabelled else (count + 1,)
        tasks = plan.tasks or [Task(client) for client in state.clients]
        tasks = [replace(task, models=task.models + beside) for task in tasks]
        request = ProfileRequest(self.follows, self.halves, unlabelled)
        return replace(plan, tasks=tasks, models=models, config=request.to_config())
