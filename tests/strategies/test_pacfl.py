"""PACFL: principal vectors, their angles, and the clusters that follow from them."""

import numpy as np
import pytest
import torch

from cfl_flower.clustering.subspaces import subspace_angles as angles
from cfl_flower.errors import InvalidResultError
from cfl_flower.types import FloatArray, Result
from clients.pacfl import principal_vectors
from strategies.pacfl import common_vectors, merge_clients
from tests.conftest import open_method


def unit(*degrees: float) -> FloatArray:
    """Return vectors of length 1 in a plane of three dimensions, by their angles."""
    turned = np.radians(degrees)
    return np.stack([np.cos(turned), np.sin(turned), 0 * turned], axis=1)


def test_principal_vectors_are_those_of_the_samples_as_they_are():
    samples = torch.tensor([[[3.0, 0.0]], [[0.0, 4.0]], [[0.0, 4.0]]])
    # X^T X is diagonal with 9 and 32.
    found = abs(principal_vectors(samples, 3))
    assert found.tolist() == [[0, 1], [1, 0], [0, 0]]
    assert not principal_vectors(samples[:0], 2).any()
    # The mean is not taken away: one sample is its own principal vector.
    one = principal_vectors(torch.tensor([[[3.0, 4.0]]]), 1)
    assert abs(one) == pytest.approx(np.array([[0.6, 0.8]]))


def test_angles_of_subspaces_by_hand():
    # The two planes are the same one, in other vectors.
    one, other = unit(0, 90), unit(30, 120)
    out = np.array([[0.0, 0, 1], [0, 0, 0]])
    found = angles(np.stack([one, other, -other, out]))
    assert found[0, 1] == pytest.approx(30)
    assert found == pytest.approx(found.T)
    assert (np.diag(found) == 0).all()
    # The sign of a vector means nothing.
    assert found[0, 2] == pytest.approx(found[0, 1], abs=1e-5)
    # A missing vector is at 90 degrees to all others.
    assert found[0, 3] == pytest.approx(90)
    assert angles(np.zeros((2, 2, 3)))[0, 1] == pytest.approx(90)


def test_what_clients_have_in_common_is_between_them_in_each_place():
    lacking = np.array([[0.0, 0, 0], [0, 0, 1]])
    found = abs(common_vectors(np.stack([unit(20, 0), -unit(40, 0), lacking])))
    assert found[0] == pytest.approx(unit(30)[0])
    assert found[1] == pytest.approx(unit(0)[0], abs=1e-9)
    assert not common_vectors(np.stack([lacking, lacking]))[0].any()


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [
        (9, [0, 0, 1, 2]),
        (10, [0, 0, 1, 1]),
        # {0, 1} and {2, 3}: (30 + 20) / 2 from 2, (32 + 22) / 2 from 3, 26 on average.
        (25, [0, 0, 1, 1]),
        (26, [0, 0, 0, 0]),
    ],
)
def test_the_nearest_merge_up_to_the_threshold(threshold, expected):
    gaps = np.array([[0, 5, 30, 32], [5, 0, 20, 22], [30, 20, 0, 10], [32, 22, 10, 0]])
    found = merge_clients(gaps.astype(float), threshold)
    same = found[:, None] == found[None]
    wanted = np.array(expected)
    assert (same == (wanted[:, None] == wanted[None])).all()
    assert merge_clients(gaps[:1, :1], threshold).tolist() == [0]


def test_newcomers_join_those_near_them_and_nobody_else_moves(tmp_path):
    options = ["strategy=pacfl", "strategy.by_label=false", "strategy.vectors=1"]
    method = open_method(tmp_path, *options, "strategy.threshold=10")

    def told(client: int, degrees: float) -> Result:
        return Result(client, 5, [], report=unit(degrees))

    method.welcome(1, [told(0, 0), told(1, 4), told(2, 60)])
    state = method.state
    assert state.clusters.tolist() == [0, 0, 1]
    assert len(state.models) == 2
    state.models[1] = state.models[1] + 1
    method.welcome(2, [told(3, 58), told(4, 89), told(5, 2), told(6, 90)])
    assert state.clusters.tolist() == [0, 0, 1, 1, 2, 0, 2]
    assert (state.models[2] == method.run.initial_model()).all()
    assert state.subspaces.shape == (7, 1, 3)


def test_vectors_whose_length_is_not_one_are_refused(tmp_path):
    method = open_method(tmp_path, "strategy=pacfl", "strategy.vectors=1")
    vectors = np.zeros((10, 64), np.float32)
    vectors[0, 0] = 1
    result = Result(0, 5, [vectors.ravel()])
    assert method.read_result("query", result).report.shape == (10, 64)
    for wrong in (0.5, 2.0, -3.0):
        spoilt = vectors * np.float32(wrong)
        with pytest.raises(InvalidResultError, match="length"):
            method.read_result("query", Result(0, 5, [spoilt.ravel()]))


@pytest.mark.parametrize(
    "options",
    [["strategy.threshold=15"], ["strategy.by_label=false", "strategy.threshold=12"]],
)
def test_the_true_groups_are_found_before_the_first_round(run_small, options):
    run = run_small("strategy=pacfl", "drift=none", "rounds=1", *options)
    assert run.rounds[0]["ari"] == 1
