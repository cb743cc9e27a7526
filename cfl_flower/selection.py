"""Who takes part in a round; always over stable client ids, never over nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfl_flower.types import IntArray


def share_participants(
    participants: int, sizes: IntArray, rng: np.random.Generator
) -> IntArray:
    """Share M participants over K clusters.

    Fielding, Algorithm 1, line 9: M/K from each cluster. The remainder of M/K goes to
    the largest clusters (lowest id on a tie), and no cluster gives more than it has:
    small clusters leave fewer than M participants. With M < K, M clusters are drawn
    anew in each round, so that every model is trained.

    Parameters
    ----------
    participants : int
        M.
    sizes : array of shape (K,)
        Members of each cluster; empty clusters get no share and do not count in K.
    rng : numpy.random.Generator
        Draws only if M < K.

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
class RandomSelection:
    """Choose uniformly at random within each cluster, without replacement."""

    def choose(
        self, members: IntArray, count: int, rng: np.random.Generator
    ) -> IntArray:
        """Return ``count`` of the members, in ascending order."""
        return np.sort(rng.choice(members, count, replace=False))
