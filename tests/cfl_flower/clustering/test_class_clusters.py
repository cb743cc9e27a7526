"""FedCCFA's clusters of clients, class by class: eq. 4, 5 and 7."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cfl_flower.clustering.class_clusters import (
    class_distances,
    cluster_classes,
    cluster_means,
)
from cfl_flower.runs.measures import class_scores


def test_distances_by_hand() -> None:
    # Class 0: cosines of (1,0), (1,0), (0,1) are 1, 0, 0.
    rows = np.array([[[1.0, 0.0]], [[2.0, 0.0]], [[0.0, 3.0]]])
    gaps = class_distances(rows, np.ones((3, 1)))
    # One third client each: q=2 tells 0 and 1 apart by |0 - 0|; q=1 tells 0 and 2
    # apart by |1 - 0|.
    assert gaps[0].tolist() == [[0, 0, 1], [0, 0, 1], [1, 1, 0]]
    assert cluster_classes(gaps, 0.1).ravel().tolist() == [0, 0, 1]


def test_zero_rows_and_few_holders_are_borne() -> None:
    rows = np.zeros((4, 3, 2))
    rows[:, 0] = [[1, 0], [0, 0], [0, 0], [1, 0]]
    rows[:2, 1] = [[1, 0], [1, 0.1]]
    weights = np.array([[1, 1, 0], [1, 1, 0], [1, 0, 1], [1, 0, 0]])
    gaps = class_distances(rows, weights)
    assert np.isfinite(gaps[0]).all()
    clusters = cluster_classes(gaps, 0.1)
    # Two holders by their cosine distance, one alone, none at all.
    assert clusters[:, 1].tolist() == [0, 0, -1, -1]
    assert clusters[:, 2].tolist() == [-1, -1, 0, -1]
    assert cluster_classes(class_distances(rows[:1], weights[:1]), 0.1).tolist() == [
        [0, 0, -1]
    ]


@given(
    st.lists(st.integers(3, 6), min_size=2, max_size=3),
    st.integers(0, 99),
    st.floats(0, 0.6),
)
@settings(max_examples=25, deadline=None)
def test_planted_clusters_are_found_whoever_lacks_a_class(
    sizes: list[int], seed: int, lacking: float
) -> None:
    rng = np.random.default_rng(seed)
    truth = np.repeat(np.arange(len(sizes)), sizes)
    bases = np.eye(5)[: len(sizes)]
    rows = bases[truth][:, None] + 0.01 * rng.normal(size=(len(truth), 4, 5))
    weights = (rng.random((len(truth), 4)) >= lacking) * 1.0
    # Fewer than a few of a cluster look like any others that few are alike to.
    weights[np.concatenate([np.flatnonzero(truth == k)[:3] for k in set(truth)])] = 1
    clusters = cluster_classes(class_distances(rows, weights), 0.1)
    assert ((clusters >= 0) == (weights > 0)).all()
    scores = class_scores(np.repeat(truth[:, None], 4, axis=1), clusters)
    assert scores == [1, 1, 1, 1]


def test_members_of_a_cluster_get_its_mean_and_nobody_elses() -> None:
    # The case that the authors' code gets wrong: anchors 1, 2, 3, 4, cluster {0, 1}.
    values = np.array([1.0, 2, 3, 4]).reshape(4, 1, 1)
    clusters = np.array([[0], [0], [1], [-1]])
    with np.errstate(all="raise"):
        uniform = cluster_means(values, clusters, np.ones((4, 1)))
    assert uniform.ravel().tolist() == [1.5, 1.5, 3, 4]
    assert values.ravel().tolist() == [1, 2, 3, 4]
    weights = np.array([[1.0], [3], [5], [0]])
    weighted = cluster_means(values, clusters, weights)
    assert weighted.ravel().tolist() == [1.75, 1.75, 3, 4]
    # A class that nobody has says nothing of the next one.
    both = [np.repeat(each, 2, axis=1) for each in (values, clusters, weights)]
    both[1][:, 0] = -1
    assert cluster_means(*both)[:, 1].ravel().tolist() == [1.75, 1.75, 3, 4]
