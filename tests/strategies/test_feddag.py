"""FedDAG: distances of samples and updates, what weighs them, and the threshold."""

from math import exp, log, sqrt

import numpy as np
import pytest

from cfl_flower.clustering.similarity import chosen_entries
from cfl_flower.clustering.subspaces import class_angles
from cfl_flower.errors import InvalidResultError
from cfl_flower.types import FloatArray, Result
from strategies.feddag import (
    choose_threshold,
    clustering_loss,
    entropy,
    first_of_fewest,
    fuse,
    learn_weights,
    scaled,
)
from tests.conftest import open_method


def turned(*degrees: float | None) -> FloatArray:
    """Return a vector for each client by its angle, zero where it has none."""
    found = [
        (np.cos(np.radians(d)), np.sin(np.radians(d))) if d is not None else (0, 0)
        for d in degrees
    ]
    return np.array(found)[:, None]


def between(n: int, **gaps: float) -> FloatArray:
    """Return the distances of n clients; g01=0.5 is that of the first two."""
    found = np.zeros((n, n))
    for name, gap in gaps.items():
        one, other = int(name[1]), int(name[2])
        found[one, other] = found[other, one] = gap
    return found


def test_angles_of_labels_weigh_by_counts():
    # Everyone has label 0; the last alone has label 1.
    subspaces = np.stack([turned(0, 30, 60), turned(None, None, 0)], axis=1)
    counts = np.array([[3.0, 0], [7, 0], [15, 9]])
    # ln 4, ln 8 and ln 16 have the ratios 3/2, 2 and 4/3, of which 2 is the largest.
    found = class_angles(subspaces, counts, 0.5)
    assert found[0, 1] == pytest.approx(30 * 1.0 / 2)
    assert found[0, 2] == pytest.approx((60 * 1.5 + 90) / 2)
    assert found[1, 2] == pytest.approx((30 * (0.5 + 1 / 3) + 90) / 2)
    assert found == pytest.approx(found.T)
    assert not np.diag(found).any()
    plain = class_angles(subspaces, counts, 0.0)
    assert plain[0] == pytest.approx([0, 15, 75])
    # Nobody has what nobody has.
    assert not class_angles(subspaces * 0, counts * 0, 0.5).any()


def test_distances_are_scaled_by_those_of_different_clients():
    assert not scaled(between(3, g01=4, g02=4, g12=4)).any()
    assert scaled(np.zeros((1, 1))).tolist() == [[0]]


def test_a_pair_weighs_as_its_first_client_does():
    updates = between(3, g01=1, g02=0.6, g12=0.2)
    samples = between(3, g01=0, g02=0.2, g12=1)
    found = fuse(updates, samples, np.array([0.25, 1, 0.5]))
    assert found == pytest.approx(between(3, g01=0.25, g02=0.3, g12=0.2))


def test_the_entropy_of_rows_by_hand_and_its_slope():
    updates, samples = between(2, g01=log(3)), np.zeros((2, 2))
    found, _ = entropy(np.ones(2), updates, samples)
    # exp gives 1 and 3 in each row.
    assert found == pytest.approx(2 * (log(4) - 0.75 * log(3)))
    rng = np.random.default_rng(0)
    one, other = (scaled(each + each.T) for each in rng.random((2, 5, 5)))
    weights = rng.random(5)
    _, slope = entropy(weights, one, other)
    for client in range(5):
        step = 1e-6 * np.eye(5)[client]
        ends = [entropy(weights + sign * step, one, other)[0] for sign in (1, -1)]
        assert slope[client] == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=1e-7)
    # The last client is the first of no pair.
    assert slope[4] == 0


def test_weights_take_what_parts_clients_and_stay_once_known():
    parted = between(4, g02=1, g03=1, g12=1, g13=1)
    level = np.full((4, 4), 0.5)
    assert learn_weights(parted, level, np.zeros(0))[:3] == pytest.approx(np.ones(3))
    found = learn_weights(level, parted, np.array([0.7]))
    assert found[:3] == pytest.approx([0.7, 0, 0])


def test_the_loss_of_a_clustering_by_hand():
    gaps = between(4, g01=0.1, g23=0.3, g02=1, g03=1, g12=1, g13=1)
    # Two of the four pairs of a cluster are its two clients.
    loose = 0.1 / 2 + 0.3 / 2
    assert clustering_loss(gaps, np.array([0, 0, 1, 1])) == pytest.approx(loose + 0.01)
    assert clustering_loss(gaps, np.arange(4)) == pytest.approx(0.01)
    # Nine clients in 4, 4 and 1: their mean is 3, their deviation the root of 2.
    clusters = np.repeat([0, 1, 2], [4, 4, 1])
    penalty = (1 + 1 + exp(3 - sqrt(2) - 1)) / 3
    assert clustering_loss(np.zeros((9, 9)), clusters) == pytest.approx(0.01 * penalty)
    assert clustering_loss(9 * gaps, np.zeros(4, np.int64)) == 1


def groups(*levels: float) -> FloatArray:
    """Return distances of 8 clients: pairs, pairs of pairs, and everyone."""
    number = np.arange(8)
    found = np.full((8, 8), levels[2])
    for size, level in ((4, levels[1]), (2, levels[0]), (1, 0.0)):
        found[np.equal.outer(number // size, number // size)] = level
    return found


@pytest.mark.parametrize(
    ("slack", "expected"),
    [
        # Eight clusters lose 0.01, four 0.17, two 0.48 and one 0.68.
        (0.1, 0.05),
        (0.25, 0.4),
        (0.5, 0.9),
        (0.9, 1.0),
    ],
)
def test_the_fewest_clusters_that_lose_little_are_taken(slack, expected):
    gaps = groups(0.08, 0.42, 0.93)
    assert choose_threshold(gaps, slack) == pytest.approx(expected)


CIFAR = (
    [0.77, 0.77, *[1.0] * 8, *[0.149] * 6, 0.251, 0.161, 0.117, 0.117],
    [1, 1, 2, 3, 3, 3, 4, 4, 5, 6, *[11] * 6, 12, 13, 14, 14],
)
SVHN = (
    [
        *[0.675] * 4,
        *(0.866, 0.866),
        *[1.0] * 5,
        *(0.896, 0.688),
        *[0.343] * 4,
        *(0.315, 0.205, 0.141),
    ],
    [1, 1, 1, 1, 2, 2, 3, 4, 4, 5, 5, 7, 9, *[11] * 4, 14, 18, 24],
)
"""Losses and numbers of clusters of table 19, from threshold 1.00 down."""


@pytest.mark.parametrize("table", [CIFAR, SVHN], ids=["cifar", "svhn"])
def test_the_papers_table_19_gives_its_eleven_clusters(table):
    losses, counts = table
    assert len(losses) == len(counts) == 20
    place = first_of_fewest(losses, counts, 0.25)
    assert counts[place] == 11
    assert counts[place - 1] != 11


def test_later_clients_are_placed_by_the_first_ones_threshold(tmp_path):
    options = ["strategy=feddag", "strategy.vectors=1", "strategy.spread=0"]
    method = open_method(tmp_path, *options, "strategy.threshold=0.3")

    def told(client: int, degrees: float) -> Result:
        vectors = np.zeros((10, 64))
        vectors[0, :2] = turned(degrees)[0, 0]
        counts = np.float32([5, *[0] * 9])
        update = np.float32(turned(degrees)[0, 0])
        arrays = [vectors.astype(np.float32).ravel(), counts, update]
        return Result(client, 5, arrays, report=vectors)

    method.welcome(1, [told(0, 0), told(1, 10), told(2, 80)])
    state = method.state
    assert state.clusters.tolist() == [0, 0, 1]
    assert state.threshold == 0.3
    weights = state.weights.copy()
    state.threshold = 0.31
    method.welcome(2, [told(3, 75), told(4, 5), told(5, 45)])
    assert state.clusters.tolist() == [0, 0, 1, 1, 0, 2]
    assert state.weights[:3].tolist() == weights.tolist()
    assert state.threshold == 0.31
    assert state.updates.shape == (6, 2)
    assert state.counts.shape == (6, 10)
    assert len(state.models) == 3


@pytest.mark.parametrize("wrong", [[-1, 6], [2.5, 2.5], [4, 2]])
def test_counts_that_are_not_of_all_samples_are_refused(wrong, tmp_path):
    method = open_method(tmp_path, "strategy=feddag", "strategy.vectors=1")
    vectors = np.zeros(640, np.float32)
    update = np.zeros(13, np.float32)
    counts = np.zeros(10, np.float32)
    counts[:2] = [2, 3]
    result = Result(0, 5, [vectors, counts, update])
    assert method.read_result("query", result).report.shape == (10, 64)
    counts[:2] = wrong
    with pytest.raises(InvalidResultError, match="counts of labels"):
        method.read_result("query", result)


def test_everyone_sends_the_same_entries_of_an_update():
    found = chosen_entries(650, 0.02, 3)
    assert found.tolist() == chosen_entries(650, 0.02, 3).tolist()
    assert len(np.unique(found)) == 13
    assert found.tolist() == sorted(found)
    assert found.tolist() != chosen_entries(650, 0.02, 4).tolist()
    assert chosen_entries(9, 0.02, 0).shape == (1,)


@pytest.mark.parametrize(
    "partition",
    [
        ["partition.purity=1", "partition.labels=2", "partition.alpha=0.5"],
        # The same images by other names, which PACFL cannot see.
        ["partition=iid", "partition.shifts=[0,3,6]"],
    ],
    ids=["labels", "concepts"],
)
def test_the_true_groups_are_found_before_the_first_round(partition, run_small):
    run = run_small("strategy=feddag", "drift=none", "rounds=1", *partition)
    assert run.rounds[0]["ari"] == 1


@pytest.mark.parametrize("first", [1, 3])
def test_a_client_without_others_does_not_choose_the_threshold(first, run_small):
    joining = 1 - first / 12
    run = run_small(
        *("strategy=feddag", "drift=none", "rounds=3", "clients=12", "participants=1"),
        *("partition.groups=2", "partition.purity=1"),
        *("devices.joins=[2]", f"devices.joining={joining}"),
    )
    assert run.rounds[0]["num_clusters"] == max(1, first - 1)
    assert run.rounds[-1]["num_clusters"] >= 2
