"""Profiles, their distances and their clusters, by hand."""

import numpy as np
import pytest

from cfl_flower.clustering.profiles import (
    adaptive_clusters,
    elbow,
    full_profile,
    group_ranges,
    label_free_profile,
    profile_distances,
    random_projection,
)


def test_a_profile_has_moments_of_all_samples_and_of_each_label():
    points = np.array([[1.0, 0], [3, 4], [5, 8]])
    found = full_profile(points, np.array([1, 1, 2]), 3)
    overall = [3, 4, np.sqrt(8 / 3), np.sqrt(32 / 3)]
    # Label 0 has no samples, label 2 a single one: neither has moments.
    means = [-1, -1, 2, 2, -1, -1]
    deviations = [-1, -1, 1, 2, -1, -1]
    assert found == pytest.approx([*overall, *means, *deviations])
    assert found.dtype == np.float32
    assert label_free_profile(points) == pytest.approx(overall)
    assert label_free_profile(points[:0]).tolist() == [-1, -1, -1, -1]


def test_a_projection_is_orthonormal_and_has_zeros_for_what_lacks():
    wide = random_projection(50, 3, np.random.default_rng(0))
    assert wide.T @ wide == pytest.approx(np.eye(3), abs=1e-6)
    narrow = random_projection(2, 3, np.random.default_rng(0))
    assert narrow.shape == (2, 3)
    assert not narrow[:, 2].any()
    assert narrow[:, :2].T @ narrow[:, :2] == pytest.approx(np.eye(2), abs=1e-6)


def test_distances_are_those_of_min_max_scaled_groups():
    # Three groups of two numbers, of three clients; the last group is constant.
    profiles = np.array([[0.0, 4, 1, 1, 7, 7], [2, 2, 1, 3, 7, 7], [4, 0, 2, 1, 7, 7]])
    ranges = group_ranges(profiles, 3)
    assert ranges.tolist() == [4, 2, 1]
    gaps = profile_distances(profiles, profiles[:1], ranges)
    # Client 1: (2/4, -2/4, 0, 2/2); client 2: (4/4, -4/4, 1/2, 0).
    expected = [0, np.sqrt(0.25 + 0.25 + 1), np.sqrt(1 + 1 + 0.25)]
    assert gaps[:, 0] == pytest.approx(expected)
    free = profile_distances(profiles[:, :4], profiles[:1, :4], ranges[:2])
    assert free == pytest.approx(gaps)
    inputs = profile_distances(profiles[:, :2], profiles[:1, :2], ranges[:1])
    assert inputs[:, 0] == pytest.approx([0, np.sqrt(0.5), np.sqrt(2)])


def test_the_elbow_is_kneedles():
    # Turned: 0, .5, .975, .9875, 1, 1 less 0, .2, .4, .6, .8, 1: 0, .3, .575, .3875...
    # The fall of .1875 is below the threshold of 1 / 5, that to .2 is not.
    assert elbow(np.array([1.0, 1.0, 1.1, 1.2, 5.0, 9.0])) == 3
    # A straight line, and a concave one, have none.
    assert elbow(np.array([1.0, 2, 3, 4])) == 3
    assert elbow(np.array([2.0, 2, 2])) == 2
    # By `kneed` 0.9.0.
    assert elbow(np.array([0.1, 0.2, 0.2, 0.3, 2.0, 2.2])) == 3


@pytest.mark.parametrize(
    ("nearest", "found"),
    [
        # Descriptors of ten clients with labels of their own meanings (flux.md), of
        # which pairs tie, and the elbow of `kneed` 0.9.0.
        ("0.913 0.913 0.961 0.961 0.994 0.994 1.300 1.300 1.340 1.414", 8),
        ("0.799 0.799 0.899 0.899 0.999 0.999 1.045 1.045 1.087 1.092", 7),
        ("0.727 0.727 0.979 0.979 1.008 1.008 1.162 1.190 1.210 1.440", 8),
        ("1.015 1.015 1.092 1.092 1.192 1.192 1.204 1.204 1.236 1.482", 8),
    ],
)
def test_the_elbow_of_pairs_is_that_of_the_authors_library(nearest, found):
    assert elbow(np.array(nearest.split(), float)) == found


def test_clusters_are_of_pairs_and_outliers_alone():
    points = np.array([[0.0], [0.1], [5.0], [5.1], [0.2], [90.0]])
    # The nearest are at .1 (five times) and 84.9: the elbow is at .1.
    assert adaptive_clusters(points).tolist() == [0, 0, 1, 1, 0, 2]
    assert adaptive_clusters(points[:1]).tolist() == [0]
    assert adaptive_clusters(np.zeros((3, 2))).tolist() == [0, 0, 0]
