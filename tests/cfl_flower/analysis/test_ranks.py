"""Average ranks, and when methods differ by them."""

from __future__ import annotations

import pytest

from cfl_flower.analysis.leads import average_ranks, critical_difference


def test_the_best_on_each_stream_has_rank_one() -> None:
    scores = {"a": [0.5, 0.5, 0.5], "b": [0.9, 0.6, 0.4], "c": [0.1, 0.2, 0.6]}
    assert average_ranks(scores) == pytest.approx({"b": 5 / 3, "a": 2, "c": 7 / 3})


def test_the_critical_difference_is_that_of_demsars_example() -> None:
    # Four classifiers on 14 datasets: q = 2.569.
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=0.005)
