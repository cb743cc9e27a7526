"""Means, anchors and classifiers of methods with a shared extractor."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cfl_flower.errors import InvalidResultError
from cfl_flower.learning.anchors import (
    Anchors,
    mean_anchors,
    parse_counts,
    presence_config,
    read_anchors,
)
from cfl_flower.privacy.clipping import capped_means
from clients.fedpac import statistics
from strategies.families.decoupled import AnchorState
from strategies.fedpac import combine, simplex_minimum

# FedFM


def test_global_anchors_are_weighted_by_samples_and_never_lost():
    points = np.float32([[[1], [9], [0]], [[4], [0], [0]]])
    counts = np.array([[1.0, 2, 0], [2.0, 0, 0]])
    before = Anchors(np.float32([[7], [7], [7]]), np.array([False, True, True]))
    found = mean_anchors(points, counts, before)
    assert found.points.ravel().tolist() == [3, 9, 7]
    assert found.present.tolist() == [True, True, True]


def test_a_class_mean_is_at_most_twice_as_long_as_the_others_of_its_class():
    # Of class 0 three clients, of class 1 two; client 2 has none of it, client 1 lies.
    points = np.zeros((3, 2, 2), np.float32)
    points[:, 0] = [[3, 4], [3e9, -4e9], [0, 5.5]]
    points[:, 1] = [[0, 1], [-1e9, 0], [0, 9]]
    counts = np.array([[5.0, 1], [5, 1], [5, 0]])
    found = capped_means(points, counts)
    assert found[[0, 2]].tolist() == [[[3, 4], [0, 1]], [[0, 5.5], [0, 2]]]
    assert found[1].ravel() == pytest.approx([6.6, -8.8, -2, 0])
    assert found.dtype == np.float32
    # Zeros say nothing of lengths.
    points[1] = 0
    assert np.array_equal(capped_means(points, counts)[counts > 0], points[counts > 0])


def test_one_client_s_huge_class_means_cost_the_others_nothing(run_small, monkeypatch):
    options = ["strategy=fedpac", "model=mlp", "drift=none", "rounds=6"]
    plain = run_small(*options)
    average = AnchorState.average

    def attacked(state: AnchorState, points: Any, counts: Any, cap: Any) -> None:
        average(state, [1e12 * points[0], *points[1:]], counts, cap)

    monkeypatch.setattr(AnchorState, "average", attacked)
    found = run_small(*options, folder="attacked")
    last = [run.rounds[-1]["accuracy_mean"] for run in (plain, found)]
    assert last[1] > last[0] - 0.05
    assert not any(row["failures"] for row in found.rounds)


def test_anchors_survive_the_wire():
    anchors = Anchors(np.float32([[1, 2], [0, 0]]), np.array([True, False]))
    found = read_anchors(anchors.points.ravel(), presence_config(anchors))
    assert np.array_equal(found.points, anchors.points)
    assert np.array_equal(found.present, anchors.present)


@pytest.mark.parametrize(
    "data",
    [None, 3, b"12", np.float32([1, np.nan]).tobytes(), np.float32([1, -1]).tobytes()],
)
def test_counts_that_are_none_are_refused(data):
    with pytest.raises(InvalidResultError):
        parse_counts(data, 2)


@pytest.mark.parametrize("name", ["fedccfa", "fedpac"])
def test_what_goes_back_to_participants_waits_for_no_test(name, run_small, undisturbed):
    options = [f"strategy={name}", "model=mlp", "rounds=3"]
    run = run_small(*options, "system.evaluate_every=3")
    assert run.rounds[0]["accuracy"] is None
    for key in ("accuracy", "accuracy_mean", "bytes_down"):
        assert run.rounds[2][key] == undisturbed(*options).rounds[2][key]


# FedPAC


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 999))
@settings(max_examples=60, deadline=None)
def test_the_minimum_meets_the_conditions_of_optimality(count, rank, seed):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(rank, count))
    matrix = root.T @ root + np.diag(rng.random(count))
    weights = simplex_minimum(matrix)
    assert weights.sum() == pytest.approx(1)
    assert (weights >= 0).all()
    gradient, value = matrix @ weights, weights @ matrix @ weights
    # Equal to the value where a weight is positive, and not below it elsewhere.
    assert gradient[weights > 1e-9] == pytest.approx(value, rel=1e-6, abs=1e-9)
    assert (gradient >= value - 1e-6).all()


def test_matrices_without_curvature_share_evenly():
    assert simplex_minimum(np.zeros((4, 4))).tolist() == [0.25] * 4
    assert simplex_minimum(np.array([[5.0]])).tolist() == [1]


def test_the_programme_by_the_papers_loop():
    rng = np.random.default_rng(0)
    means, variances = rng.normal(size=(3, 4)), np.array([1.0, 2, 3])
    for own, found in enumerate(combine(variances, means)):
        bias = np.array(
            [
                [(means[own] - means[j]) @ (means[own] - means[k]) for k in range(3)]
                for j in range(3)
            ]
        )
        exact = simplex_minimum(np.diag(variances) + bias)
        exact[exact < 1e-3] = 0
        assert found == pytest.approx(exact / exact.sum(), abs=1e-6)


def test_clients_that_are_alike_share_and_others_do_not():
    means = np.array([[10.0, 0], [10, 0.1], [0, 10]])
    weights = combine(np.full(3, 0.01), means)
    assert weights[0] == pytest.approx([2 / 3, 1 / 3, 0])
    assert weights[2].tolist() == [0, 0, 1]


def test_statistics_by_hand():
    z = torch.tensor([[1.0, 0], [3, 0], [0, 2], [0, 2]])
    variance, means = statistics(z, torch.tensor([0, 0, 1, 1]), np.array([2, 2]))
    # Shares 1/2; mean squares 5 and 4; means (2, 0) and (0, 2).
    assert means.tolist() == [1, 0, 0, 1]
    assert variance == pytest.approx((0.5 * 5 + 0.5 * 4 - 0.25 * 4 - 0.25 * 4) / 4)
