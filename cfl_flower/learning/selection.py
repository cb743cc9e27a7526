"""Selection of a round's participants, over rows of clients."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import numpy as np
from numpy.random import Generator
from pydantic import Field

from cfl_flower.settings import Count, Fraction, NonNegative, settings
from cfl_flower.types import FloatArray, IntArray


def share_participants(participants: int, sizes: IntArray, rng: Generator) -> IntArray:
    """Share M participants over K clusters.

    Fielding, Algorithm 1, line 9: M/K from each cluster. The remainder of M/K goes to
    the largest clusters (lowest id on a tie); a cluster with fewer members gives all,
    which leaves fewer than M participants. If M < K, each round draws M clusters, so
    that every model is trained. ``sizes`` are the members of each cluster, shape (K,);
    empty ones get no share and do not count in K.

    Examples
    --------
    >>> share_participants(10, np.array([12, 2, 0, 20]), np.random.default_rng(0))
    array([3, 2, 0, 4])
    """
    shares = np.zeros(len(sizes), np.int64)
    alive = np.flatnonzero(sizes)
    if len(alive):
        base, extra = divmod(participants, len(alive))
        shares[alive] = base
        first = alive[np.argsort(-sizes[alive], kind="stable")]
        if base == 0:
            first = rng.permutation(alive)
        shares[first[:extra]] += 1
    return np.minimum(shares, sizes)


@dataclass(frozen=True)
class History:
    """Observations of clients when they took part; rows as in the state."""

    utility: FloatArray = field(default_factory=lambda: np.zeros(0))
    """Samples times the root mean square of their losses (Oort, eq. 1), shape (n,)."""
    seconds: FloatArray = field(default_factory=lambda: np.zeros(0))
    """Time of the device, shape (n,); NaN if unknown."""
    last: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    """The last round in which it took part, shape (n,); 0: never."""
    gained: FloatArray = field(default_factory=lambda: np.zeros(0))
    """Mean utility, by round, of those that had taken part before, shape (t,)."""

    def extended(self, count: int) -> History:
        """Return the history of ``count`` clients; the new ones never took part."""
        more = count - len(self.last)
        return replace(
            self,
            utility=np.append(self.utility, np.zeros(more)),
            seconds=np.append(self.seconds, np.full(more, np.nan)),
            last=np.append(self.last, np.zeros(more, np.int64)),
        )

    def noted(
        self,
        server_round: int,
        rows: IntArray,
        utility: FloatArray,
        seconds: FloatArray,
    ) -> History:
        """Return the history after a round's participants; all arrays: shape (m,)."""
        exploited = utility[self.last[rows] > 0]
        mean = float(exploited.mean()) if len(exploited) else 0.0
        now = {"utility": utility, "seconds": seconds, "last": server_round}
        after = {name: getattr(self, name).copy() for name in now}
        for name, value in now.items():
            after[name][rows] = value
        return replace(self, gained=np.append(self.gained, mean), **after)


@dataclass(frozen=True)
class Known:
    """The observations that a selection can use."""

    round: int
    history: History
    distances: FloatArray
    """Distance of each client to its cluster's centre, shape (n,); empty without
    centres."""


@settings("selection")
class RandomSelection:
    """Choose uniformly at random within each cluster, without replacement."""

    learns: ClassVar[bool] = False
    """Whether it looks at the `History`."""
    by_distance: ClassVar[bool] = False
    """Whether it looks at the distances from centres."""

    def choose(
        self, members: IntArray, count: int, rng: Generator, known: Known
    ) -> IntArray:
        """Return ``count`` of the members, which are rows of the state, ascending.

        Parameters
        ----------
        members : array of int, shape (m,)
            The rows of those who can take part.
        count : int
            How many of them, at most m.
        rng : numpy.random.Generator
            The round's.
        known : Known
            What was observed of the clients.
        """
        return np.sort(rng.choice(members, count, replace=False))


@settings("selection")
class NearestToCentre(RandomSelection):
    """Choose the clients nearest to their cluster's centre: Fielding, section 3."""

    by_distance: ClassVar[bool] = True

    def choose(
        self, members: IntArray, count: int, rng: Generator, known: Known
    ) -> IntArray:
        """Return the nearest members; ties are broken at random."""
        order = rng.permutation(members)
        nearest = np.argsort(known.distances[order], kind="stable")
        return np.sort(order[nearest[:count]])


POOL = 10
"""The least number of Oort's candidates, as a multiple of the number needed."""


@settings("selection")
class Oort(RandomSelection):
    """Choose clients of large loss and short time, and some that never took part.

    Lai et al., "Oort: Efficient Federated Learning via Guided Participant Selection"
    (OSDI 2021), with FedScale's numbers.

    Deviations from FedScale's code:

    * Unseen clients are drawn uniformly; FedScale prefers the faster ones, whose speed
      is unknown here.
    * Their number is rounded up with the probability of its fraction. FedScale rounds
      down: a cluster with one participant, or fewer than four once the share is 0.3,
      would never explore, and late clients never take part.
    * If too few clients are unseen, seen ones take their places; FedScale selects
      fewer.
    * Utilities are scaled after they are clipped, so that the largest is 1.
    * T is a percentile of the observed times; FedScale guesses those of the others.

    As there, a client counts for no more samples than its local steps can train on.
    """

    exploration: Fraction = 0.9
    """Share of the participants that were never seen, at the start."""
    decay: Fraction = 0.98
    """Factor of that share in each round."""
    least_exploration: Fraction = 0.3
    """The share at which the decay ends."""
    cut_off: Fraction = 0.05
    """Candidates are drawn among those that score at least this times the score of the
    last one needed, and among no fewer than ten times as many as are needed."""
    penalty: NonNegative = 2.0
    """alpha; a client of time t above the preferred T has (T/t)^alpha of its score."""
    pacer_step: Count = 20
    """Rounds between adjustments of T."""
    pacer_delta: Annotated[float, Field(gt=0, le=100)] = 5.0
    """Percentiles by which T moves: up while the utility stays what it was."""

    learns: ClassVar[bool] = True

    def choose(
        self, members: IntArray, count: int, rng: Generator, known: Known
    ) -> IntArray:
        """Return the best of the seen clients, and some of the unseen ones."""
        seen = members[known.history.last[members] > 0]
        new = np.setdiff1d(members, seen)
        share = self.exploration * self.decay ** max(known.round - 1, 0)
        wanted = max(share, self.least_exploration) * count
        exploring = int(wanted + rng.random())
        fresh = min(max(exploring, count - len(seen)), len(new))
        chosen = rng.choice(new, fresh, replace=False)
        best = self._exploit(seen, count - fresh, rng, known)
        return np.sort(np.concatenate([chosen, best]))

    def _exploit(
        self, seen: IntArray, count: int, rng: Generator, known: Known
    ) -> IntArray:
        """Draw among the best with probabilities by their scores."""
        if count == 0:
            return seen[:0]
        scores = self.scores(seen, known)
        best = np.argsort(-scores, kind="stable")
        edge = self.cut_off * scores[best[count - 1]]
        good = best[: max(int((scores >= edge).sum()), POOL * count)]
        # No probability is 0, so that all candidates can be drawn.
        chances = scores[good] + 1e-4
        return rng.choice(seen[good], count, replace=False, p=chances / chances.sum())

    def scores(self, seen: IntArray, known: Known) -> FloatArray:
        """Return the utility of clients: Oort, equations 1 and 2.

        The statistical utility, clipped at its 90th percentile and scaled to [0, 1],
        plus a bonus for clients not seen for long, times the penalty for slow devices.
        """
        history = known.history
        utility = history.utility[seen]
        utility = np.minimum(utility, np.percentile(utility, 90))
        span = float(np.ptp(utility))
        scaled = (utility - utility.min()) / span if span else np.ones(len(seen))
        # Oort: the bonus of clients that were not seen for long, sqrt(0.1 ln t / L).
        bonus = np.sqrt(0.1 * np.log(max(known.round, 1)) / history.last[seen])
        times = history.seconds[seen]
        # T, the pacer's percentile of the known times.
        timed = history.seconds[~np.isnan(history.seconds)]
        preferred = np.percentile(timed, self.pace(history)) if len(timed) else np.inf
        slow = np.where(times > preferred, preferred / np.maximum(times, 1e-9), 1.0)
        # Eq. 1 and 2: the utility times (T / t)^alpha of a slow device.
        return (scaled + bonus) * slow**self.penalty

    def pace(self, history: History) -> float:
        """Return the percentile of T, from 30: Oort, Algorithm 1.

        Every `pacer_step` rounds, their utility is compared with that of as many rounds
        before: T grows if it is the same within a tenth, and shrinks if it changed
        several times over. As in FedScale, utilities of explored clients do not count.
        """
        pace = 30.0
        step = self.pacer_step
        gained = history.gained
        for end in range(2 * step, len(gained) + 1, step):
            before = float(gained[end - 2 * step : end - step].sum())
            change = abs(float(gained[end - step : end].sum()) - before)
            if change <= 0.1 * before:
                pace = min(100.0, pace + self.pacer_delta)
            elif change >= 5 * before:
                pace = max(self.pacer_delta, pace - self.pacer_delta)
        return pace
