"""The two sides of an Auxo cohort, found from updates, and the rewards."""

from __future__ import annotations

import numpy as np

from cfl_flower.seeding import one_thread
from cfl_flower.types import BoolArray, FloatArray, IntArray

NEITHER = -1
"""The side of a client that has none."""


def directions(updates: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return updates, (m, d), centred by their mean, and the same at length 1.

    Zero stays zero: where all updates are equal there are no directions.
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
    """Return participants' rewards for a cohort, (m,): R0 less their distance from it.

    ``centred`` has their centred updates, (m, d). All are 0 without two members.
    """
    if members.sum() < 2:
        return np.zeros(len(centred))
    gaps = np.linalg.norm(centred - centred[members].mean(axis=0), axis=1)
    scale = float(gaps.mean() + gaps.std())
    if scale == 0:
        return np.full(len(centred), reward * float(members.mean()))
    found: FloatArray = (reward - reward / scale * gaps) * float(members.mean())
    return found


def may_split(sizes: tuple[int, int], clients: int, cohorts: int) -> bool:
    """Return whether both sides are large enough, and after the first split alike.

    ``clients`` counts those of all cohorts.

    Examples
    --------
    >>> may_split((3, 9), 40, 1), may_split((3, 9), 40, 2), may_split((5, 9), 40, 2)
    (True, False, True)
    """
    least = clients // 20 * 0.9 ** (cohorts - 1)
    alike = cohorts == 1 or 0.5 < sizes[0] / max(sizes[1], 1) < 2
    return min(sizes) > least and alike
