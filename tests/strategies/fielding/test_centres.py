"""Fielding's Algorithm 2, step by step."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies.fielding.reclustering import (
    CentreTrigger,
    DriftEvent,
    FieldingState,
    mean_centre_distance,
    move_drifted,
    needs_reclustering,
)

CENTRES = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1]])


def test_only_drifted_clients_move_each_to_its_nearest_centre():
    points = np.float32([[0.9, 0.1, 0], [0.2, 0.8, 0], [0, 0.4, 0.6], [0, 0, 1]])
    clusters = np.array([0, 0, 0, 0])
    moved = move_drifted(np.array([1, 2]), points, clusters, CENTRES, "l1")
    assert moved.tolist() == [0, 1, 2, 0]
    assert clusters.tolist() == [0, 0, 0, 0]


@given(st.permutations(range(8)), st.integers(0, 99))
def test_the_order_of_reports_has_no_effect(order, seed):
    points = np.random.default_rng(seed).dirichlet(np.ones(3), 8)
    clusters = np.zeros(8, np.int64)
    one = move_drifted(np.arange(8), points, clusters, CENTRES, "l1")
    two = move_drifted(np.array(order), points, clusters, CENTRES, "l1")
    assert np.array_equal(one, two)


def test_each_client_is_as_far_from_its_own_centre_as_the_metric_says():
    points = np.array([[1.0, 0, 0], [0, 0, 2], [0, 3, 0]])
    clusters = np.array([0, 0, 1])
    state = FieldingState([0, 1, 2], clusters, [], points, centres=CENTRES)
    assert state.own_distances("l1").tolist() == [0, 3, 2]
    assert state.own_distances("l2").tolist() == [0, 5, 4]


def test_theta_is_the_mean_distance_over_pairs_of_centres():
    # L1 distances of the three pairs: 2, 1, 1.
    centres = np.array([[1.0, 0], [0, 1], [0.5, 0.5]])
    assert mean_centre_distance(centres, "l1") == pytest.approx(4 / 3)
    assert mean_centre_distance(centres[:1], "l1") == 0


@pytest.mark.parametrize(
    ("shift", "theta", "expected"),
    [
        (0.5, 1.5, True),
        (0.49, 1.5, False),
        (0.0, 1.5, False),
        (0.0, 0.0, False),
        (0.01, 0.0, True),
    ],
)
def test_reclustering_is_triggered_at_a_third_of_theta(shift, theta, expected):
    assert needs_reclustering(shift, theta, 1 / 3) is expected


@pytest.mark.parametrize(("tau", "fires"), [(0.34, True), (0.36, False)])
def test_a_centre_without_members_is_in_no_theta(tau, fires):
    centres = np.array([[1.0, 0], [0, 1], [50, 50]])
    state = FieldingState([0, 1], np.array([0, 1]), CENTRES[:3], centres=centres)
    before = centres - [[0.7, 0], [0, 0], [0, 0]]
    event = DriftEvent(before, tau, "l1", [slice(None)])
    # Of the two others theta is 2, and 0.7 is 0.35 of it.
    assert CentreTrigger().fires(state, event) is fires
