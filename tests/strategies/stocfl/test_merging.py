"""Merging clusters: StoCFL, Algorithm 1, lines 10 to 13."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfl_flower.clustering.similarity import cosine_matrix, normalise
from strategies.stocfl.merging import find_merges, merge_models, purity


def test_a_cosine_equal_to_the_threshold_is_not_merged():
    same = np.ones((3, 3))
    assert find_merges(same, 1.0) == []
    assert find_merges(same, 0.99) == [(0, 1), (0, 2)]
    assert find_merges(-np.ones((2, 2)) + 2 * np.eye(2), -1.0) == []
    assert find_merges(np.zeros((0, 0)), 0.5) == []


def test_of_two_equal_cosines_the_lower_cluster_is_merged():
    # 1 and 2 merge to (24, 0, 0), whose cosine with 0 is 0.6, as is that of 3 with 0.
    vectors = np.array([[3, 0, 4], [12, 5, 0], [12, -5, 0], [-7, 0, 24]])
    assert find_merges(vectors @ vectors.T * 1.0, 0.5) == [(1, 2), (0, 1)]


def slow_merges(vectors: list[np.ndarray], threshold: float) -> list[tuple[int, int]]:
    """Merge as Algorithm 1 says, from the vectors themselves."""
    sums: dict[int, np.ndarray] = dict(enumerate(vectors))
    merges = []
    while True:
        found = [
            (float(normalise(sums[i]) @ normalise(sums[j])), i, j)
            for i in sums
            for j in sums
            if i < j
        ]
        cosine, i, j = max(found, default=(-2.0, 0, 0), key=lambda each: each[0])
        if not cosine > threshold:
            return merges
        merges.append((i, j))
        sums[i] = sums[i] + sums.pop(j)


@given(st.integers(0, 10**6), st.integers(1, 12), st.floats(-1, 1))
@settings(deadline=None, max_examples=60)
def test_merges_equal_those_of_a_plain_loop(seed, count, threshold):
    rng = np.random.default_rng(seed)
    vectors = list(rng.normal(size=(count, 4)))
    gram = np.array([[a @ b for b in vectors] for a in vectors])
    assert find_merges(gram, threshold) == slow_merges(vectors, threshold)


@given(st.integers(0, 10**6), st.floats(0.1, 0.9))
@settings(deadline=None, max_examples=30)
def test_chained_merges_are_the_connected_parts(seed, threshold):
    rng = np.random.default_rng(seed)
    vectors = list(rng.normal(size=(9, 3)).astype(np.float32))
    cosines = cosine_matrix(vectors)
    label = np.arange(9)
    for first, second in find_merges(cosines, threshold, recompute=False):
        label[label == second] = first
    for i in range(9):
        for j in range(i):
            if cosines[i, j] > threshold:
                assert label[i] == label[j]
    assert all(label <= np.arange(9))


def test_purity_equals_the_value_computed_by_hand():
    clusters, truth = np.array([3, 3, 3, 7, 7]), np.array([1, 1, 2, 2, 2])
    assert purity(clusters, truth) == pytest.approx(4 / 5)
    # One cluster of two concepts is not pure, and two of one concept are.
    alone = np.zeros(4, np.int64)
    assert purity(alone, np.array([0, 0, 0, 1])) == 0.75
    assert purity(np.array([0, 0, 0, 1]), alone) == 1


@pytest.mark.parametrize(
    ("rule", "sizes", "trained", "model", "known"),
    [
        # 1 and 5 weighted by 3 and 1 members.
        ("mean", (3, 1), (True, True), 2, True),
        ("mean", (3, 1), (False, True), 5, True),
        ("mean", (1, 3), (True, False), 1, True),
        ("mean", (1, 3), (False, False), 1, False),
        ("larger", (3, 1), (True, True), 1, True),
        ("larger", (1, 3), (True, True), 5, True),
        ("larger", (2, 2), (True, True), 1, True),
        # A larger one that nobody trained has no model that could replace another.
        ("larger", (1, 3), (True, False), 1, True),
        # The lower one is larger: it starts afresh, as in the code.
        ("larger", (3, 1), (False, True), 1, False),
        ("larger", (1, 3), (False, True), 5, True),
    ],
)
def test_the_model_of_merged_clusters_by_hand(rule, sizes, trained, model, known):
    pair = [np.float32([1, -1]), np.float32([5, -5])]
    found, told = merge_models(pair, np.array(sizes), np.array(trained), rule)
    assert found.tolist() == [model, -model]
    assert told is known
