"""Who changes the cluster, whatever its number."""

from __future__ import annotations

from typing import Any

import pytest

from cfl_flower.churn import churn, count_moved


def rows(**rounds: list[int | None]) -> list[dict[str, Any]]:
    """Return tests of clients 0, 1, ... in rounds r1, r2, ..., None if not tested."""
    return [
        {"round": int(name[1:]), "client": client, "cluster": cluster}
        for name, clusters in rounds.items()
        for client, cluster in enumerate(clusters)
        if cluster is not None
    ]


@pytest.mark.parametrize(
    ("before", "after", "moved"),
    [
        ([0, 0, 1, 1], [0, 0, 1, 1], 0),
        ([0, 0, 1, 1], [7, 7, 3, 3], 0),  # other numbers
        ([0, 0, 0, 1, 1], [1, 1, 0, 0, 0], 1),  # exchanged, and one moves
        ([0, 0, 0, 1, 1], [0, 0, 0, 0, 0], 2),  # merged: the smaller one moves
        ([0, 0, 0, 0], [0, 0, 0, 1], 1),  # split: the smaller part moves
        ([0, 1, 2], [0, 0, 0], 2),
    ],
)
def test_a_cluster_is_known_by_its_members(
    before: list[int], after: list[int], moved: int
) -> None:
    assert count_moved(before, after) == moved


def test_churn_is_the_mean_over_the_rounds() -> None:
    # None of four, then two of four, then one of four.
    found = churn(rows(r1=[0, 0, 1, 1], r2=[0, 0, 1, 1], r3=[0, 0, 0, 2], r4=[0] * 4))
    assert found == pytest.approx((0 + 1 / 4 + 1 / 4) / 3)


def test_who_was_not_tested_twice_in_a_row_is_left_out() -> None:
    tests = rows(r1=[0, 0, 1, 1], r2=[0, 1, 1, None])
    assert churn(tests) == pytest.approx(1 / 3)


def test_what_tests_show_is_spread_over_the_rounds_between_them() -> None:
    # One of four in the five rounds from 5 to 10, and nobody in the next one.
    tests = rows(r5=[0, 0, 1, 1], r10=[0, 1, 1, 1], r11=[0, 1, 1, 1])
    assert churn(tests) == pytest.approx(1 / 4 / 6)


@pytest.mark.parametrize(
    "tests", [[], rows(r1=[0, 1]), rows(r1=[0, None], r2=[None, 1])]
)
def test_without_two_tests_of_a_client_there_is_no_number(
    tests: list[dict[str, Any]],
) -> None:
    assert churn(tests) is None
