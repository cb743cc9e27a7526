"""Auxo's rewards and splits, step by step and as a whole."""

from pathlib import Path

import numpy as np
import pytest

from cfl_flower.types import Result
from strategies.auxo import (
    NEITHER,
    Auxo,
    assign_sides,
    cohort_rewards,
    directions,
    first_sides,
    known_sides,
)
from tests.conftest import open_method

GROUPS = np.array([[1.0, 0], [1, 0.1], [-1, 0], [-1, 0.1], [1, -0.1], [-1, -0.1]])
NOBODY = np.full(6, NEITHER)


def test_equal_updates_have_no_direction():
    centred, units = directions(np.ones((3, 2)))
    assert not centred.any()
    assert not units.any()
    _, units = directions(np.array([[3.0, 0], [-3, 8]]))
    assert np.linalg.norm(units, axis=1) == pytest.approx(1)


EVERYONE = np.ones(6, bool)


def test_the_first_sides_are_two_clusters_of_those_known():
    told = first_sides(GROUPS, EVERYONE)
    assert told[0] == told[1] == told[4] != told[2]
    assert told[2] == told[3] == told[5]
    some = first_sides(GROUPS, np.arange(6) < 4)
    assert some[0] == some[1] != some[2] == some[3]
    assert some[4:].tolist() == [NEITHER] * 2
    assert first_sides(GROUPS, np.arange(6) < 1).tolist() == [NEITHER] * 6


def test_later_only_those_without_a_side_take_that_of_their_nearest():
    """As the authors' `knn_update_subR`; otherwise one side swallows the other."""
    known = np.array([1, NEITHER, 0, NEITHER, 1, 0])
    # 0, 2, 4 and 5 keep theirs, though 5 drifted to the other group: no reward.
    drifted = GROUPS.copy()
    drifted[5] = [1, -0.3]
    for units in (GROUPS, drifted):
        assert assign_sides(units, known).tolist() == [-1, 1, -1, 0, -1, -1]
    everyone = np.array([1, 1, 0, 0, 1, 0])
    assert assign_sides(GROUPS, everyone).tolist() == NOBODY.tolist()


def test_a_quarter_joins_the_only_side_there_is():
    known = np.array([1, NEITHER, NEITHER, NEITHER, 1, NEITHER])
    told = assign_sides(
        np.vstack([GROUPS, GROUPS[:2]]), np.append(known, [NEITHER] * 2)
    )
    # Of eight two: those that have it, or are equal to them. The others learn nothing.
    assert (told == 1).sum() == 2
    assert told[0] == 1
    assert (told == NEITHER).sum() == 6
    one = np.array([NEITHER, NEITHER, 0, NEITHER, NEITHER, NEITHER])
    assert assign_sides(GROUPS, one).tolist() == [-1, -1, 0, -1, -1, -1]


def learner(folder: Path, *overrides: str) -> Auxo:
    """Return Auxo with six clients in one cohort."""
    sizes = ["clients=6", "participants=6"]
    auxo: Auxo = open_method(folder, "strategy=auxo", *sizes, *overrides)
    auxo.welcome(1, [Result(client, 1) for client in range(6)])
    return auxo


def test_sides_are_made_once_and_do_not_flip(tmp_path):
    """Fitted anew, sides with other numbers would be added to the old rewards."""
    auxo, own = learner(tmp_path), np.zeros(6, np.int64)
    auxo.learn(0, np.arange(6), GROUPS, own)
    first = known_sides(auxo.state.sides[:, 0])
    for turn in range(1, 6):
        # The same clients with the other group first, so that k-means numbers anew.
        rows = np.roll(np.arange(6), turn)
        auxo.learn(0, rows, GROUPS[rows], own)
        assert known_sides(auxo.state.sides[:, 0]).tolist() == first.tolist()
    assert np.ptp(auxo.state.sides[:, 0], axis=1).tolist() == [2] * 6


@pytest.mark.parametrize("labelled", [0, 1])
def test_with_nobody_or_one_that_has_a_side_no_sides_are_made_anew(labelled, tmp_path):
    auxo = learner(tmp_path)
    auxo.state.begun[0] = True
    auxo.state.sides[3, 0] = [0.0, 2.0] if labelled else [0.0, 0.0]
    auxo.learn(0, np.arange(6), GROUPS, np.zeros(6, np.int64))
    expected = [NEITHER] * 3 + [1 if labelled else NEITHER] + [NEITHER] * 2
    assert known_sides(auxo.state.sides[:, 0]).tolist() == expected


def test_cohorts_count_their_own_rounds_and_make_new_sides(tmp_path):
    auxo = learner(tmp_path, "strategy.split_rounds=[2]")
    for _ in range(2):
        auxo.learn(0, np.arange(6), GROUPS, np.zeros(6, np.int64))
        auxo.split([0])
    state = auxo.state
    assert len(state.models) == 2
    assert state.learned.tolist() == [2, 2]
    assert state.begun.tolist() == [False, False]
    # Sides have become rewards for the two cohorts, and there are none.
    assert not state.sides.any()
    assert state.rewards.argmax(axis=1).tolist() == state.clusters.tolist()
    assert np.array_equal(state.rewards[:, 0], -state.rewards[:, 1])
    # A cohort in which too few took part learned nothing, and does not split.
    auxo.split([])
    assert len(state.models) == 2
    # Nobody has a side yet: a split would leave a cohort of nobody.
    auxo.split([0, 1])
    assert len(state.models) == 2


def test_a_cohort_rewards_those_who_are_like_its_members():
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


TWO = ["strategy=auxo", "strategy.split_rounds=[3]", "drift.rounds=[]", "rounds=8"]
TWO += ["clients=16", "participants=12", "partition.groups=2"]


def test_cohorts_split_by_the_true_groups(run_small):
    run = run_small(*TWO)
    assert [row["num_clusters"] for row in run.rounds[:2]] == [1, 1]
    assert run.rounds[2]["reclustered"]
    assert run.rounds[-1]["num_clusters"] == 2
    assert run.rounds[-1]["ari"] > 0.6
    # Clients send models alone.
    assert all(row["bytes_up"] == row["participants"] * 4 * 650 for row in run.rounds)
    assert all(row["drifted"] is None for row in run.rounds)
    single = run_small(*TWO, "strategy.split_rounds=[20]", folder="single")
    assert single.rounds[-1]["num_clusters"] == 1
    assert run.rounds[-1]["accuracy"] > single.rounds[-1]["accuracy"]


def test_clients_explore_less_from_round_to_round(tmp_path):
    asked = ["strategy.exploration=1", "strategy.decay=0", "clients=40"]
    method: Auxo = open_method(tmp_path, "strategy=auxo", *asked, "participants=4")
    state = method.state
    state.clients = list(range(40))
    state.clusters = np.arange(40) % 2
    state.models = [*state.models, state.models[0]]
    state.rewards = np.eye(2)[state.clusters]
    moved = []
    for server_round in (1, 2):
        method.plan_train(server_round)
        moved.append(int((state.requested != state.clusters).sum()))
    # All of them draw a cohort in the first round, which is another one for half.
    assert 10 < moved[0] < 30
    assert moved[1] == 0
