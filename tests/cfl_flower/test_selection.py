from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfl_flower.selection import RandomSelection, share_participants

SIZES = st.lists(st.integers(0, 30), min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("participants", "sizes", "shares"),
    [
        (10, [20, 20], [5, 5]),
        (11, [20, 30], [5, 6]),  # the remainder goes to the largest
        (11, [20, 20], [6, 5]),  # the lowest id on a tie
        (10, [12, 2, 0, 20], [3, 2, 0, 4]),  # nobody gives more than it has
        (2, [5, 5, 9], [1, 0, 1]),
        (4, [0, 0], [0, 0]),
    ],
)
def test_participants_are_shared_over_clusters(
    participants: int, sizes: list[int], shares: list[int]
) -> None:
    assert share_participants(participants, np.array(sizes)).tolist() == shares


@given(st.integers(1, 60), SIZES)
def test_shares_stay_within_the_clusters_and_within_m(m: int, sizes: list[int]) -> None:
    shares = share_participants(m, np.array(sizes))
    assert (shares <= sizes).all()
    assert (shares >= 0).all()
    assert shares.sum() <= m
    full = -(-m // max(1, np.count_nonzero(sizes)))
    if all(size == 0 or size >= full for size in sizes) and any(sizes):
        assert shares.sum() == m


def test_random_selection_draws_without_replacement_in_ascending_order() -> None:
    members = np.array([3, 5, 8, 9, 20])
    chosen = RandomSelection().choose(members, 4, np.random.default_rng(0))
    assert len(set(chosen.tolist())) == 4
    assert set(chosen.tolist()) <= set(members.tolist())
    assert chosen.tolist() == sorted(chosen.tolist())
