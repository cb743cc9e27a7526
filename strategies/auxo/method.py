"""Auxo: cohorts that split in two, found from participants' updates alone.

Liu et al., "Auxo: Efficient Federated Learning via Scalable Client Clustering" (SoCC
2023). The updates of a cohort's participants, centred and brought to length 1, fall on
two sides. Each side that a participant is found on is rewarded; once both are large
enough the cohort splits, and the new cohorts start from the same model. A client asks
for the cohort that rewarded it most, or, rarely, for another.

Server keeps: of each client and cohort a reward and one for each of its two sides
(3 n K floats). Leaves the device: the model of a participant (d floats). A client that
does not take part stays in its cohort, even if its data drifted (Fielding, section
2.1).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from pydantic import Field

from cfl_flower.communication.results import Results
from cfl_flower.engine.method import (
    ClusteredStrategy,
    Description,
    Disclosure,
    StrategySettings,
    cluster_plan,
)
from cfl_flower.settings import Count, Fraction, Positive, settings
from cfl_flower.state import ClusteredState, Sampling, Weighting
from cfl_flower.types import BoolArray, FloatArray, IntArray, Plan, Result
from strategies.auxo.sides import (
    NEITHER,
    assign_sides,
    cohort_rewards,
    directions,
    first_sides,
    known_sides,
    may_split,
)


@settings("strategy")
class AuxoSettings(StrategySettings):
    """Auxo's settings."""

    weighting: Weighting = "plain"
    sampling: Sampling = "clusters"
    split_rounds: list[Count] = field(default_factory=lambda: [50, 100])
    """A cohort's own rounds in which it splits; empty: whenever it has `split_at`
    members and both sides are large enough."""
    split_at: Annotated[int, Field(ge=2)] = 100
    """Members from which a cohort splits, without `split_rounds`."""
    smallest: Annotated[int, Field(ge=2)] = 5
    """Participants of a cohort from which anything is learned."""
    reward: Positive = 5.0
    """R0, the reward for a cohort."""
    side_reward: Positive = 1.0
    """r0, the reward for a side of a cohort."""
    exploration: Fraction = 0.01
    """Probability of asking for any cohort in the first round."""
    decay: Fraction = 0.99
    """Factor of that probability in each round."""


@dataclass
class AuxoState(ClusteredState):
    """Auxo's state."""

    rewards: FloatArray = field(default_factory=lambda: np.zeros((0, 1)))
    """R of each client and cohort, shape (n, K)."""
    sides: FloatArray = field(default_factory=lambda: np.zeros((0, 1, 2)))
    """Rewards of a cohort's two sides, shape (n, K, 2); equal: the client has none."""
    begun: BoolArray = field(default_factory=lambda: np.zeros(1, bool))
    """Whether a cohort's first sides were made, shape (K,)."""
    learned: IntArray = field(default_factory=lambda: np.zeros(1, np.int64))
    """Rounds in which a cohort learned, its parent's included, shape (K,)."""


class Auxo(ClusteredStrategy):
    """Cohorts, their rewards and their splits."""

    Settings = AuxoSettings
    State = AuxoState
    discloses = Disclosure(singly=True)

    def welcome(self, server_round: int, newcomers: list[Result]) -> None:
        """Let newcomers ask for any cohort."""
        state = self.state
        count = len(state.models)
        more = len(newcomers)
        rng = self.run.rng("join", server_round)
        state.join(newcomers, rng.integers(count, size=more))
        state.rewards = np.vstack([state.rewards, np.zeros((more, count))])
        state.sides = np.concatenate([state.sides, np.zeros((more, count, 2))])

    def plan_train(self, server_round: int) -> Plan:
        """Let clients ask for their favourite cohort, some for any other."""
        state = self.state
        settings = self.settings
        rng = self.run.rng("explore", server_round)
        count = len(state.clients)
        own = state.clusters
        asked = rng.integers(len(state.models), size=count)
        chance = settings.exploration * settings.decay ** (server_round - 1)
        explores = rng.random(count) < chance
        # Where rewards are equal there is no favourite.
        explores |= np.ptp(state.rewards, axis=1) == 0
        self._asked = np.where(explores, asked, own)
        rows = self.run.participants.choose(server_round, self._asked)
        return cluster_plan(state, rows, self._asked)

    def absorb_train(self, server_round: int, results: Results) -> None:
        """Learn from each cohort's updates, average, and split cohorts that are due."""
        state = self.state
        own = state.clusters
        rows = self.state.rows(result.client for result in results)
        learned: list[int] = []
        for cohort in range(len(state.models)):
            here = np.flatnonzero(self._asked[rows] == cohort)
            if len(here) >= self.settings.smallest:
                updates = np.stack([results[i].arrays[0] for i in here])
                self.learn(cohort, rows[here], updates - state.models[cohort], own)
                learned.append(cohort)
        self.run.average_clusters(self._asked[rows], results)
        rewards = state.rewards
        # Without a largest reward a client stays where it is.
        tied = np.ptp(rewards, axis=1) == 0
        state.clusters = np.where(tied, own, rewards.argmax(axis=1))
        self.split(learned)
        self.run.record.moved = int(np.count_nonzero(state.clusters != own))

    def describe(self) -> Description:
        """Return no models: participants may have trained in another cohort."""
        return Description(comparable=False)

    def learn(
        self, cohort: int, rows: IntArray, updates: FloatArray, own: IntArray
    ) -> None:
        """Reward a cohort's m participants for it, and for the side they are on.

        ``updates`` has the shape (m, d), ``own`` each client's cohort so far, (n,).
        """
        state = self.state
        settings = self.settings
        centred, units = directions(updates.astype(float))
        members = own[rows] == cohort
        if state.begun[cohort]:
            found = assign_sides(units, known_sides(state.sides[rows, cohort]))
        else:
            found = first_sides(units, members | (len(state.models) == 1))
        rewarded = rows[found != NEITHER]
        side = found[found != NEITHER]
        state.sides[rewarded, cohort, side] += settings.side_reward
        state.sides[rewarded, cohort, 1 - side] -= settings.side_reward
        state.begun[cohort] |= len(rewarded) > 0
        state.learned[cohort] += 1
        if len(state.models) > 1:
            gained = cohort_rewards(centred, members, settings.reward)
            state.rewards[rows, cohort] += gained
            state.sides[rows[gained < 0], cohort] = 0.0

    def split(self, learned: list[int]) -> None:
        """Split the cohorts, of those that learned in a round, that are due."""
        before = len(self.state.models)
        for cohort in filter(self.is_due, learned):
            self.split_cohort(cohort)
        self.run.record.reclustered = len(self.state.models) > before

    def is_due(self, cohort: int) -> bool:
        """Return whether a cohort has reached the round or sizes at which it splits."""
        state = self.state
        settings = self.settings
        members = np.flatnonzero(state.clusters == cohort)
        side = known_sides(state.sides[members, cohort])
        sizes = int((side == 0).sum()), int((side == 1).sum())
        if settings.split_rounds:
            due = int(state.learned[cohort]) in settings.split_rounds
            return due and min(sizes) > 0
        large = len(members) >= settings.split_at
        return large and may_split(sizes, len(state.clients), len(state.models))

    def split_cohort(self, cohort: int) -> None:
        """Turn a cohort's sides into cohorts, which start from the same model."""
        state = self.state
        sides = state.sides[:, cohort].copy()
        parts = state.rewards[:, [cohort]] + sides
        state.rewards = np.column_stack([state.rewards, parts[:, 1]])
        state.rewards[:, cohort] = parts[:, 0]
        fresh = np.zeros((len(sides), 1, 2))
        state.sides = np.concatenate([state.sides, fresh], axis=1)
        state.sides[:, cohort] = 0.0
        state.learned = np.append(state.learned, state.learned[cohort])
        state.begun = np.append(state.begun, False)
        state.begun[cohort] = False
        state.models.append(state.models[cohort])
        moves = (state.clusters == cohort) & (known_sides(sides) == 1)
        state.clusters = np.where(moves, len(state.models) - 1, state.clusters)
