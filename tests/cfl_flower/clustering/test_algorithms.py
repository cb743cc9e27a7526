import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score, silhouette_score

from cfl_flower.clustering.algorithms import (
    KMeansScan,
    choose_clusters,
    cluster_centres,
    complete_linkage,
    kmeans,
    mixing_matrix,
    nearest_centre,
    number_by_appearance,
    silhouettes,
)
from cfl_flower.clustering.representations import distances

LABELS = st.lists(st.integers(0, 5), min_size=1, max_size=40).map(np.array)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def histograms(groups: int, each: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return clients around a few distributions, and which one each is around."""
    bases = np.eye(groups) * 0.9 + 0.1 / groups
    truth = np.arange(groups * each) % groups
    rows = [rng(seed + i).dirichlet(100 * bases[k]) for i, k in enumerate(truth)]
    return np.array(rows, np.float32), truth


def test_the_nearest_centre_is_the_first_on_a_tie_and_never_an_unknown_one():
    centres = np.array([[np.nan, np.nan], [0, 0], [2, 2], [0, 0]])
    points = np.array([[1.0, 1.0], [0.1, 0], [2, 1.5]])
    assert nearest_centre(points, centres, "l1").tolist() == [1, 1, 2]


@given(LABELS, st.integers(0, 99))
def test_mixing_is_the_mean_over_the_members_of_their_old_models(old, seed):
    new = number_by_appearance(rng(seed).integers(0, 3, len(old)))
    models = rng(seed).normal(size=(6, 4))
    mixed = mixing_matrix(old, new, 6) @ models
    for cluster in range(new.max() + 1):
        expected = np.mean([models[k] for k in old[new == cluster]], axis=0)
        assert mixed[cluster] == pytest.approx(expected)


@given(LABELS)
def test_numbers_by_appearance_keep_the_clusters_and_ignore_their_names(labels):
    numbered = number_by_appearance(labels)
    assert adjusted_rand_score(labels, numbered) == 1
    assert numbered[0] == 0
    assert np.array_equal(numbered, number_by_appearance((labels + 3) % 6))
    firsts = [int(np.flatnonzero(numbered == k)[0]) for k in range(numbered.max() + 1)]
    assert firsts == sorted(firsts)


@pytest.mark.parametrize("metric", ["l1", "js"])
@pytest.mark.parametrize("count", [30, 1100])
def test_silhouettes_equal_scikit_learns(metric, count):
    points = rng().dirichlet(np.ones(5), count)
    labelings = [
        np.arange(count) % 2,
        np.arange(count) % 7,
        (np.arange(count) == 5).astype(int),  # a cluster of one client
    ]
    gaps = distances(points, points, metric)
    np.fill_diagonal(gaps, 0)
    expected = [silhouette_score(gaps, k, metric="precomputed") for k in labelings]
    assert silhouettes(points, labelings, metric) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("groups", [2, 3, 7])
@pytest.mark.parametrize("metric", ["l1", "js"])
def test_choose_clusters_finds_k_and_the_clusters(groups, metric):
    points, truth = histograms(groups, 8)
    found = choose_clusters(points, metric, KMeansScan(), rng())
    assert adjusted_rand_score(truth, found) == 1
    assert np.array_equal(found, number_by_appearance(found))


@pytest.mark.parametrize(
    "points",
    [
        np.full((10, 4), 0.25, np.float32),
        np.float32([[1, 0]]),
        np.float32([[1, 0], [0, 1]]),
    ],
    ids=["all equal", "one client", "two clients"],
)
def test_points_without_structure_are_one_cluster(points):
    assert not choose_clusters(points, "l1", KMeansScan(), rng()).any()


def test_the_scan_stays_within_its_range():
    points, _ = histograms(6, 5)
    found = choose_clusters(points, "l1", KMeansScan(2, 3), rng())
    assert found.max() + 1 <= 3
    # With a silhouette that no clustering reaches there is one cluster.
    single = choose_clusters(points, "l1", KMeansScan(2, 3), rng(), least=1.1)
    assert single.tolist() == [0] * 30


def test_choose_clusters_splits_finely_only_on_evidence():
    # Clients without clusters: the largest silhouette is 0.13, at many clusters.
    flat = rng(2).dirichlet(np.ones(10), 100).astype(np.float32)
    largest = choose_clusters(flat, "l1", KMeansScan(substantial=0), rng())
    careful = choose_clusters(flat, "l1", KMeansScan(), rng())
    assert careful.max() + 1 == 2 < largest.max() + 1


def test_scan_takes_the_largest_silhouette():
    points, _ = histograms(4, 6)
    found = choose_clusters(points, "l1", KMeansScan(largest=8), rng())
    others = [
        choose_clusters(points, "l1", KMeansScan(k, k), rng()) for k in range(2, 9)
    ]
    scores = silhouettes(points, others, "l1")
    assert silhouettes(points, [found], "l1")[0] == pytest.approx(max(scores))


def test_the_best_of_the_restarts_counts():
    points = rng().dirichlet(np.ones(6), 60)

    def inertia(restarts: int, seed: int) -> float:
        scan = KMeansScan(8, 8, substantial=0, restarts=restarts)
        found = choose_clusters(points, "l1", scan, rng(seed))
        return float(((points - cluster_centres(points, found, 8)[found]) ** 2).sum())

    # The first of ten seedings is the only one of one.
    gains = [inertia(1, seed) - inertia(10, seed) for seed in range(9)]
    assert min(gains) > -1e-9
    assert max(gains) > 1e-3


def test_clustering_draws_from_its_generator_only():
    points = rng().dirichlet(np.full(4, 0.5), 50).astype(np.float32)
    scan = KMeansScan()
    np.random.seed(7)
    state = np.random.get_state()[1].copy()
    one, two = (choose_clusters(points, "l1", scan, rng(3)) for _ in range(2))
    assert np.array_equal(one, two)
    assert np.array_equal(np.random.get_state()[1], state)


def test_kmeans_finds_as_many_clusters_as_there_are_distinct_points():
    points = np.array([[0.0, 0], [0, 0.1], [9, 9], [9, 9.1]])
    labels = kmeans(points, 2, np.random.default_rng(0))
    assert number_by_appearance(labels).tolist() == [0, 0, 1, 1]
    alike = kmeans(np.ones((4, 2)), 3, np.random.default_rng(0))
    assert alike.tolist() == [0, 0, 0, 0]
    # Where seedings differ, the generator decides.
    many = rng().dirichlet(np.ones(6), 60)
    one, again, other = (kmeans(many, 8, rng(seed)) for seed in (3, 3, 4))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_complete_linkage_merges_where_the_farthest_members_are_nearest():
    # On a line at 0, 2, 3.5 and 6: 2 and 3.5 first, then 6 is 4 from its farthest
    # member there and 0 is 3.5.
    places = np.array([[0.0], [2], [3.5], [6]])
    gaps = np.abs(places - places.T)
    assert number_by_appearance(complete_linkage(gaps, 2)).tolist() == [0, 0, 0, 1]
    assert complete_linkage(np.zeros((1, 1)), 3).tolist() == [0]
    assert sorted(complete_linkage(gaps[:2, :2], 3)) == [0, 1]
    assert sorted(complete_linkage(gaps, 9)) == [0, 1, 2, 3]


def test_many_clients_are_clustered_as_few_are(monkeypatch):
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 4, 1500)
    points = np.vstack([rng.dirichlet(1 + 60 * np.eye(6)[t]) for t in truth])
    exact = choose_clusters(points, "l1", KMeansScan(), np.random.default_rng(1))
    monkeypatch.setattr("cfl_flower.clustering.algorithms.EXACT", 1000)
    monkeypatch.setattr("cfl_flower.clustering.algorithms.SAMPLED", 400)
    some = choose_clusters(points, "l1", KMeansScan(), np.random.default_rng(1))
    again = choose_clusters(points, "l1", KMeansScan(), np.random.default_rng(1))
    assert np.array_equal(some, again)
    assert adjusted_rand_score(exact, some) > 0.99
