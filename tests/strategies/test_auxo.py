"""Auxo's rewards and splits, step by step and as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfl_flower.config import compose_config
from cfl_flower.errors import ConfigError
from strategies.auxo import (
    NEITHER,
    cohort_rewards,
    directions,
    known_sides,
    may_split,
    tell_sides,
)

Runner = Callable[..., Any]

GROUPS = np.array([[1.0, 0], [1, 0.1], [-1, 0], [-1, 0.1], [1, -0.1], [-1, -0.1]])
NOBODY = np.full(6, NEITHER)


def test_equal_updates_have_no_direction() -> None:
    centred, units = directions(np.ones((3, 2)))
    assert not centred.any()
    assert not units.any()
    _, units = directions(np.array([[3.0, 0], [-3, 8]]))
    assert np.linalg.norm(units, axis=1) == pytest.approx(1)


def test_the_first_sides_are_two_clusters() -> None:
    told = tell_sides(GROUPS, NOBODY)
    assert told[0] == told[1] == told[4] != told[2]
    assert told[2] == told[3] == told[5]


def test_later_sides_are_those_of_the_nearest_other_participant() -> None:
    known = np.array([1, NEITHER, 0, NEITHER, 1, 0])
    assert tell_sides(GROUPS, known).tolist() == [1, 1, 0, 0, 1, 0]
    # Client 5 drifted to the other group since it was last seen.
    drifted = GROUPS.copy()
    drifted[5] = [1, -0.3]
    assert tell_sides(drifted, known)[5] == 1


def test_a_quarter_joins_the_only_side_there_is() -> None:
    known = np.array([1, NEITHER, NEITHER, NEITHER, 1, NEITHER])
    told = tell_sides(np.vstack([GROUPS, GROUPS[:2]]), np.append(known, [NEITHER] * 2))
    assert (told == 1).sum() == 2
    assert (told == 0).sum() == 6


def test_a_cohort_rewards_those_who_are_like_its_members() -> None:
    members = np.array([True, True, False, False, True, False])
    gained = cohort_rewards(GROUPS, members, reward=5.0)
    # Distances to (1, 0) by hand: 0, .1, 2, ...; mean + deviation is the scale.
    gaps = np.linalg.norm(GROUPS - [1, 0], axis=1)
    expected = (5 - 5 / (gaps.mean() + gaps.std()) * gaps) / 2
    assert gained == pytest.approx(expected)
    assert (gained[members] > 0).all()
    assert gained[2] < gained[0]
    assert not cohort_rewards(GROUPS, np.zeros(6, bool), 5.0).any()
    assert cohort_rewards(np.zeros((4, 2)), np.ones(4, bool), 5.0).tolist() == [5] * 4


@given(st.integers(0, 60), st.integers(0, 60), st.integers(2, 6))
def test_after_the_first_split_sides_are_alike(one: int, two: int, count: int) -> None:
    if may_split((one, two), 60, count):
        assert max(one, two) < 2 * min(one, two)
    assert not may_split((0, two), 60, count)


def test_a_client_has_no_side_until_one_is_rewarded() -> None:
    assert known_sides(np.zeros((2, 2))).tolist() == [NEITHER, NEITHER]


TWO = [
    "strategy=auxo",
    "clients=16",
    "participants=12",
    "partition.groups=2",
    "drift.rounds=[]",
    "rounds=8",
    "strategy.split_rounds=[3]",
]


def test_cohorts_split_by_the_true_groups(run_small: Runner) -> None:
    run = run_small(*TWO)
    assert [row["num_clusters"] for row in run.rounds[:2]] == [1, 1]
    assert run.rounds[2]["reclustered"]
    assert run.rounds[-1]["num_clusters"] == 2
    assert run.rounds[-1]["ari"] > 0.6
    single = run_small(*TWO, "strategy.split_rounds=[20]", folder="single")
    assert single.rounds[-1]["num_clusters"] == 1
    assert run.rounds[-1]["accuracy"] > single.rounds[-1]["accuracy"]


def test_nothing_but_models_is_sent(run_small: Runner) -> None:
    run = run_small(*TWO)
    assert all(row["bytes_up"] == row["participants"] * 4 * 650 for row in run.rounds)
    assert all(row["drifted"] is None for row in run.rounds)


def test_without_rounds_a_large_cohort_splits(run_small: Runner) -> None:
    often = ["strategy.split_rounds=[]", "strategy.split_at=16"]
    run = run_small(*TWO, *often, "rounds=3")
    assert run.rounds[0]["reclustered"]


@pytest.mark.parametrize(
    ("setting", "part"),
    [
        ("split_rounds=[0]", "rounds of at least 1"),
        ("smallest=1", "at least 2"),
        ("reward=0", "a number above 0"),
        ("exploration=2", "a number from 0 to 1"),
    ],
)
def test_bad_settings_are_one_line(setting: str, part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        compose_config(["strategy=auxo", f"strategy.{setting}"])
