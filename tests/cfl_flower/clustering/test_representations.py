import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cfl_flower.clustering.representations import (
    chance_explains,
    check_histogram,
    digest,
    distances,
    label_histogram,
    largest_pairwise_distance,
    mean_client_distance,
    parse_vector,
    unit,
)
from cfl_flower.errors import InvalidResultError
from cfl_flower.types import Vector

HISTOGRAMS = arrays(
    np.float64, st.tuples(st.just(3), st.just(4)), elements=st.floats(0.01, 1)
).map(lambda rows: rows / rows.sum(axis=1, keepdims=True))
METRIC = st.sampled_from(["l1", "js"])


def parse_histogram(data: object, classes: int) -> Vector:
    """Read a report as Fielding does."""
    histogram = parse_vector(data, classes, "label histogram")
    check_histogram(histogram)
    return histogram


def test_a_histogram_holds_the_share_of_each_label():
    histogram = label_histogram(np.array([2, 2, 0, 2]), 4)
    assert histogram.tolist() == [0.25, 0, 0.75, 0]
    assert histogram.dtype == np.float32
    nobody = label_histogram(np.array([], np.int64), 4)
    assert nobody.tolist() == [0.25] * 4, "uniform without samples"


@given(st.lists(st.integers(0, 9), max_size=200))
def test_a_histogram_is_a_distribution_that_the_server_accepts(labels):
    histogram = label_histogram(np.array(labels, np.int64), 10)
    assert np.array_equal(parse_histogram(histogram.tobytes(), 10), histogram)


@pytest.mark.parametrize(
    "data",
    [
        None,
        "0.5",
        b"",
        np.float32([0.5, 0.5]).tobytes(),
        np.float32([0.5, 0.6, 0]).tobytes(),
        np.float32([0.5, 0.4, 0]).tobytes(),
        np.float32([1.5, -0.5, 0]).tobytes(),
        np.float32([np.nan, 0.5, 0.5]).tobytes(),
        np.float32([np.inf, 0, 0]).tobytes(),
    ],
)
def test_a_report_that_is_no_distribution_over_the_labels_is_refused(data):
    with pytest.raises(InvalidResultError, match="label histogram") as caught:
        parse_histogram(data, 3)
    assert caught.value.reason == "representation"


def test_distances_equal_those_computed_by_hand():
    a, b = np.array([[1.0, 0.0]]), np.array([[0.0, 1.0], [0.5, 0.5]])
    assert distances(a, b, "l1").tolist() == [[2, 1]]
    # Jensen-Shannon: the mixture of (1, 0) and (0.5, 0.5) is (0.75, 0.25).
    divergence = 0.5 * math.log(1 / 0.75)
    divergence += 0.5 * (0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25))
    expected = [[math.sqrt(math.log(2)), math.sqrt(divergence)]]
    assert distances(a, b, "js") == pytest.approx(np.array(expected))


@given(HISTOGRAMS, METRIC)
def test_distances_are_a_metric(rows, metric):
    gaps = distances(rows, rows, metric)
    assert not np.isnan(gaps).any()
    assert gaps == pytest.approx(gaps.T)
    assert np.diagonal(gaps) == pytest.approx(0, abs=1e-6)
    assert gaps[0, 2] <= gaps[0, 1] + gaps[1, 2] + 1e-6


def test_mean_client_distance_equals_the_value_computed_by_hand():
    # Cluster 0: L1 distances 2, 1, 1 between three clients, so each one's mean to
    # the other two is 1.5, 1.5, 1. Cluster 1: one client, 0. Mean over 4 clients: 1.
    rows = np.array([[1, 0], [0, 1], [0.5, 0.5], [1, 0]])
    found = mean_client_distance(rows, np.array([0, 0, 0, 1]), "l1")
    assert found == pytest.approx((1.5 + 1.5 + 1 + 0) / 4)
    assert mean_client_distance(np.zeros((0, 2)), np.zeros(0, np.int64), "l1") is None


def test_a_unit_vector_has_length_1_unless_it_is_zero():
    found = unit(np.float32([3, 4]))
    assert found.tolist() == np.float32([0.6, 0.8]).tolist()
    assert found.dtype == np.float32
    assert unit(np.float32([0, 0])).tolist() == [0, 0]


def test_a_digest_identifies_a_representation():
    one, two = np.float32([0.5, 0.5]), np.float32([0.25, 0.75])
    assert digest(one) == digest(one.copy()) != digest(two)


@given(HISTOGRAMS, METRIC)
def test_the_order_of_clients_does_not_change_heterogeneity(rows, metric):
    clusters = np.array([0, 0, 1])
    found = mean_client_distance(rows, clusters, metric)
    turned = mean_client_distance(rows[::-1], clusters[::-1], metric)
    # Two clients at a distance and one alone: (d + d + 0) / 3.
    expected = 2 * distances(rows, rows, metric)[0, 1] / 3
    assert found == pytest.approx(turned) == pytest.approx(expected, abs=1e-6)


def test_shares_may_be_off_by_rounding_only():
    third = np.full(3, 1 / 3, np.float32)
    assert parse_histogram((third * 1.0005).astype(np.float32).tobytes(), 3).sum() > 1
    with pytest.raises(InvalidResultError, match="sum to"):
        parse_histogram((third * np.float32(1.01)).tobytes(), 3)


def test_nearly_equal_clients_have_a_distance_in_every_metric():
    # One rounding apart, the divergence can come out below 0, whose root is NaN.
    rows = np.random.default_rng(0).dirichlet(np.ones(3), 50)
    for row in rows:
        pair = np.array([row, np.nextafter(row, 1)])
        assert distances(pair, pair, "js") == pytest.approx(0, abs=1e-6)
        found = mean_client_distance(pair, np.zeros(2, np.int64), "js")
        assert found == pytest.approx(0, abs=1e-6)


def test_homogeneity_is_pearsons_chi_squared_test():
    # Counts [6, 4] and [2, 8], expected [4, 6] twice: chi2 = 2 (4/4 + 4/6) = 10/3,
    # one degree of freedom: p = 0.068.
    histograms, counts = np.array([[0.6, 0.4], [0.2, 0.8]]), np.array([10, 10])
    assert chance_explains(histograms, counts, 0.06)
    assert not chance_explains(histograms, counts, 0.08)
    # Ten times the samples say it ten times as clearly.
    assert not chance_explains(histograms, 10 * counts, 0.001)


def test_homogeneity_ignores_clients_without_samples():
    uniform = np.full((1, 4), 0.25)
    one, two = np.array([[1.0, 0, 0, 0]]), np.array([[0, 1.0, 0, 0]])
    assert not chance_explains(np.vstack([one, uniform]), np.array([9, 0]), 0.01)
    both = np.vstack([one, two, uniform])
    assert not chance_explains(both, np.array([9, 9, 0]), 0.01)


@given(st.integers(0, 999), st.sampled_from(["l1", "js", "l2", "cosine"]))
def test_the_farthest_pair_is_found_in_its_cluster(seed, metric):
    rng = np.random.default_rng(seed)
    points, clusters = rng.dirichlet(np.ones(4), 9), rng.integers(0, 3, 9)
    gaps = distances(points, points, metric)
    same = clusters[:, None] == clusters
    expected = np.where(same & ~np.eye(9, dtype=bool), gaps, 0).max()
    found = largest_pairwise_distance(points, clusters, metric)
    assert found == pytest.approx(expected, abs=1e-6)


def test_zeros_are_far_from_everything_under_the_cosine():
    points = np.array([[0.0, 0], [1, 0], [2, 0]])
    assert distances(points[:1], points[1:], "cosine").tolist() == [[1, 1]]
    assert mean_client_distance(points, np.zeros(3, int), "cosine") == pytest.approx(
        (1 + 1 / 2 + 1 / 2) / 3
    )


@pytest.mark.parametrize("metric", ["l1", "js", "l2", "cosine"])
def test_in_large_clusters_the_outermost_stand_for_all(metric):
    rng = np.random.default_rng(0)
    points = rng.dirichlet(np.full(10, 0.3), 1500).astype(np.float32)
    found = largest_pairwise_distance(points, np.zeros(1500, int), metric)
    exact = distances(points, points, metric)
    np.fill_diagonal(exact, 0)
    assert 0.95 * exact.max() <= found <= exact.max() + 1e-6
    mean = mean_client_distance(points, np.zeros(1500, int), metric)
    sampled = mean_client_distance(points, np.zeros(1500, int), metric, rng)
    assert sampled == pytest.approx(mean, rel=0.05)
    assert sampled != mean
