"""Average ranks, and when methods differ by them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfl_flower.analysis.leads import average_ranks, critical_difference, indistinct


def test_the_best_on_each_stream_has_rank_one() -> None:
    scores = {"a": [0.5, 0.5, 0.5], "b": [0.9, 0.6, 0.4], "c": [0.1, 0.2, 0.6]}
    assert average_ranks(scores) == pytest.approx({"b": 5 / 3, "a": 2, "c": 7 / 3})


def test_the_critical_difference_is_that_of_demsars_example() -> None:
    # Four classifiers on 14 datasets: q = 2.569.
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=0.005)


def test_groups_are_the_largest_of_methods_that_do_not_differ() -> None:
    ranks = {"a": 1.0, "b": 1.8, "c": 2.5, "d": 5.0, "e": 5.5}
    assert indistinct(ranks, 1.0) == [("a", "b"), ("b", "c"), ("d", "e")]
    assert indistinct(ranks, 2.0) == [("a", "c"), ("d", "e")]
    assert indistinct(ranks, 9.0) == [("a", "e")]
    assert indistinct(ranks, 0.1) == []


@given(
    st.lists(st.floats(0, 10), min_size=1, max_size=12),
    st.floats(0.01, 5),
)
def test_what_is_in_a_group_does_not_differ(found: list[float], width: float) -> None:
    ranks = {str(i): rank for i, rank in enumerate(sorted(found))}
    groups = indistinct(ranks, width)
    assert all(ranks[last] - ranks[first] < width for first, last in groups)
    names = list(ranks)
    for place, one in enumerate(names):
        for two in names[place + 1 :]:
            joined = any(
                ranks[a] <= ranks[one] and ranks[two] <= ranks[b] for a, b in groups
            )
            assert joined or ranks[two] - ranks[one] >= width
