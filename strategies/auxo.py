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
    cluster_plan,
)
from cfl_flower.seeding import one_thread
from cfl_flower.settings import Count, Fraction, Positive, settings
from cfl_flower.state import (
    ClusteredState,
    Sampling,
    StrategySettings,
    Weighting,
    no_clusters,
)
from cfl_flower.types import BoolArray, FloatArray, IntArray, Plan, Result

NEITHER = -1
"""The side of a client that has none."""


@settings("strategy")
class AuxoSettings(StrategySettings):
    """Auxo's settings."""

    weighting: Weighting = "plain"
    sampling: Sampling = "clusters"
    split_rounds: list[Count] = field(default_factory=lambda: [50, 100])
    """A cohort's own rounds in which it splits."""
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
    requested: IntArray = field(default_factory=no_clusters)
    """The cohort that each client asked for in the last round, shape (n,)."""


def directions(updates: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return updates, (m, d), centred by their mean, and the same at length 1.

    Centred updates of zero stay zero.
    """
    centred = updates - updates.mean(axis=0)
    lengths = np.linalg.norm(centred, axis=1, keepdims=True)
    return centred, np.divide(
        centred, lengths, out=np.zeros_like(centred), where=lengths > 0
    )


def known_sides(rewards: FloatArray) -> IntArray:
    """Return the side with the larger of two rewards, (n, 2); equal: `NEITHER`.

    Examples
    --------
    >>> known_sides(np.array([[0.0, 0], [1, -1], [-2, 2]])).tolist()
    [-1, 0, 1]
    """
    return np.where(rewards[:, 0] == rewards[:, 1], NEITHER, rewards.argmax(axis=1))


def first_sides(units: FloatArray, members: BoolArray) -> IntArray:
    """Return two clusters, 0 and 1, of the members; the others are `NEITHER`.

    ``units`` are centred updates of length 1, (m, d). A single member has no side.
    """
    from sklearn.cluster import MiniBatchKMeans

    sides = np.full(len(units), NEITHER)
    if members.sum() >= 2:
        method = MiniBatchKMeans(2, random_state=0, batch_size=10, n_init=3)
        with one_thread():
            sides[members] = method.fit(units[members]).labels_
    return sides


def assign_sides(units: FloatArray, known: IntArray) -> IntArray:
    """Return the side, 0, 1 or `NEITHER`, that each participant is found on, (m,).

    A participant without a side takes that of the nearest one that has a side; one that
    has a side keeps it, as in the authors' `knn_update_subR`. ``units`` are centred
    updates of length 1, (m, d), ``known`` the sides so far, (m,).
    """
    from scipy.spatial.distance import cdist

    have = np.flatnonzero(known != NEITHER)
    if len(have) == 0:
        return known
    gaps = cdist(units, units[have])
    sides = np.full(len(units), NEITHER)
    if len(np.unique(known[have])) == 1:
        near = np.argsort(gaps.min(axis=1), kind="stable")[: len(units) // 4]
        sides[near] = known[have[0]]
        return sides
    without = known == NEITHER
    sides[without] = known[have[gaps[without].argmin(axis=1)]]
    return sides


def cohort_rewards(
    centred: FloatArray, members: BoolArray, reward: float
) -> FloatArray:
    """Return participants' rewards for a cohort, (m,), by their distance from it.

    ``centred`` has their centred updates, (m, d). All are 0 without two members.
    """
    if members.sum() < 2:
        return np.zeros(len(centred))
    gaps = np.linalg.norm(centred - centred[members].mean(axis=0), axis=1)
    scale = float(gaps.mean() + gaps.std()) or 1.0
    # (R0 - R0 / (mean + std) d) times the share of known members.
    return (reward - reward / scale * gaps) * float(members.mean())


class Auxo(ClusteredStrategy):
    """Rewards clients for cohorts and sides, and splits cohorts."""

    Settings = AuxoSettings
    State = AuxoState
    discloses = Disclosure(singly="clusters single participants' updates")

    def welcome(self, server_round: int, newcomers: list[Result]) -> None:
        """Put newcomers into random cohorts."""
        state = self.state
        count = len(state.models)
        more = len(newcomers)
        rng = self.run.rng("join", server_round)
        state.join(newcomers, rng.integers(count, size=more))
        state.rewards = np.vstack([state.rewards, np.zeros((more, count))])
        state.sides = np.concatenate([state.sides, np.zeros((more, count, 2))])

    def plan_train(self, server_round: int) -> Plan:
        """Let clients request the cohort of their largest reward, or a random one."""
        state = self.state
        settings = self.settings
        rng = self.run.rng("explore", server_round)
        count = len(state.clients)
        own = state.clusters
        drawn = rng.integers(len(state.models), size=count)
        # epsilon, which falls by the same factor in each round.
        chance = settings.exploration * settings.decay ** (server_round - 1)
        explores = rng.random(count) < chance
        # Without a largest reward the request is random.
        explores |= np.ptp(state.rewards, axis=1) == 0
        state.requested = np.where(explores, drawn, own)
        rows = self.run.participants.choose(server_round, state.requested)
        return cluster_plan(state, rows, state.requested)

    def absorb_train(self, server_round: int, results: Results) -> None:
        """Learn from each cohort's updates, average, and split cohorts that are due."""
        state = self.state
        own = state.clusters
        rows = state.rows(result.client for result in results)
        asked = state.requested[rows]
        learned: list[int] = []
        for cohort in range(len(state.models)):
            here = np.flatnonzero(asked == cohort)
            if len(here) >= self.settings.smallest:
                updates = np.stack([results[i].arrays[0] for i in here])
                self.learn(cohort, rows[here], updates - state.models[cohort], own)
                learned.append(cohort)
        self.run.average_clusters(asked, results)
        rewards = state.rewards
        # Without a largest reward a client stays in its cohort.
        tied = np.ptp(rewards, axis=1) == 0
        state.clusters = np.where(tied, own, rewards.argmax(axis=1))
        self.split(learned)
        self.run.record.moved = int(np.count_nonzero(state.clusters != own))

    def describe(self) -> Description:
        """Return that models are not comparable: cohorts share clients."""
        return Description(comparable=False)

    def learn(
        self, cohort: int, rows: IntArray, updates: FloatArray, own: IntArray
    ) -> None:
        """Reward m participants for their cohort, and for the side they are on.

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
        # r0 for the side that it is on, -r0 for the other one.
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
        """Return whether a cohort of two sides is in a round in which it splits."""
        state = self.state
        side = known_sides(state.sides[state.clusters == cohort, cohort])
        due = int(state.learned[cohort]) in self.settings.split_rounds
        return due and {0, 1} <= set(side.tolist())

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
