import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfl_flower.clustering import similarity as directions
from cfl_flower.clustering.similarity import (
    cosine_matrix,
    decomposed_cosines,
    dissimilarities,
    gram_matrix,
    leading_eigenvectors,
    madc,
    nearest_direction,
    nearest_model,
    normalise,
    sketch,
)

seeds = st.integers(0, 2**16)


def random_updates(seed: int, count: int, length: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return list(rng.normal(size=(count, length)).astype(np.float32))


def test_the_gram_matrix_equals_the_sum_of_its_blocks(monkeypatch):
    updates = random_updates(0, 5, 103)
    monkeypatch.setattr(directions, "BLOCK_FLOATS", 50)
    matrix = np.stack(updates).astype(np.float64)
    for kind, error in ((np.float32, 1e-5), (np.float64, 1e-12)):
        expected = pytest.approx(matrix @ matrix.T, rel=error, abs=error)
        assert gram_matrix(updates, kind) == expected


def test_cosines_equal_those_computed_by_hand():
    half = 1 / np.sqrt(2)
    expected = np.array([[1, half, 0], [half, 1, 0], [0, 0, 1]])
    found = cosine_matrix(list(np.float32([[3, 0], [1, 1], [0, 0]])))
    assert found == pytest.approx(expected, abs=1e-7)
    # Singular values 5 and 1 along the axes, so the directions are the axes.
    updates = list(np.float32([[3, 0, 0], [4, 0, 0], [0, 1, 0]]))
    expected = np.array([[1, 0], [1, 0], [0, 1]])
    assert decomposed_cosines(updates, 2) == pytest.approx(expected, abs=1e-6)


def test_rounding_never_takes_a_cosine_or_a_gap_out_of_its_range():
    # sqrt(3)^2 is less than 3 in floating-point numbers.
    ones = np.ones(3, np.float32)
    assert cosine_matrix([ones, -ones]).tolist() == [[1, -1], [-1, 1]]
    assert dissimilarities(ones, [ones]).tolist() == [0]
    assert nearest_direction(ones, [-ones]) == (0, -1)


def test_units_of_vectors_whose_squares_exceed_float32_are_exact():
    unit = normalise(np.float32([3e30, 4e30]))
    assert unit.dtype == np.float32
    assert unit == pytest.approx([0.6, 0.8])


def test_eigenvectors_of_a_large_matrix_are_those_of_a_dense_method():
    # Ten eigenvalues stand out of the noise.
    matrix = np.random.default_rng(0).normal(size=(300, 300))
    matrix *= np.concatenate([np.linspace(10, 20, 10), np.full(290, 0.1)])
    values, columns = leading_eigenvectors(matrix @ matrix.T, 4)
    expected, dense = np.linalg.eigh(matrix @ matrix.T)
    assert values == pytest.approx(expected[:-5:-1])
    assert np.abs(columns) == pytest.approx(np.abs(dense[:, :-5:-1]), abs=1e-6)


def assert_decomposed(updates: list[np.ndarray]) -> None:
    """Assert that cosines are those by singular value decomposition."""
    matrix = np.stack(updates).astype(np.float64)
    _, _, right = np.linalg.svd(matrix, full_matrices=False)
    norms = np.linalg.norm(matrix, axis=1, keepdims=True)
    expected = np.abs(matrix @ right[:3].T / norms)
    assert np.abs(decomposed_cosines(updates, 3)) == pytest.approx(expected, abs=1e-3)


@given(seeds, st.sampled_from([(6, 40), (40, 6), (7, 7)]))
def test_decomposed_cosines_equal_those_by_singular_value_decomposition(seed, shape):
    assert_decomposed(random_updates(seed, *shape))


def test_directions_a_million_times_weaker_than_the_first_are_found():
    # One client's update explodes: the others' groups must still be seen.
    rng = np.random.default_rng(0)
    bases = rng.normal(size=(3, 200))
    updates = [
        (bases[i % 3] + 0.05 * rng.normal(size=200)).astype(np.float32)
        for i in range(30)
    ]
    updates[0] = updates[0] * np.float32(1e6)
    for columns in (200, 20):
        assert_decomposed([update[:columns] for update in updates])


def test_decomposed_cosines_accept_few_updates_and_zero_updates():
    updates = [np.float32([0, 0, 0]), np.float32([1, 2, 2])]
    cosines = decomposed_cosines(updates, 5)
    assert cosines.shape == (2, 2)
    assert np.abs(cosines) == pytest.approx(np.array([[0, 0], [1, 0]]), abs=1e-6)


def test_madc_leaves_the_two_updates_themselves_out():
    cosines = np.array(
        [[1, 0.9, 0.1, 0], [0.9, 1, 0.2, 0.4], [0.1, 0.2, 1, 0.5], [0, 0.4, 0.5, 1]]
    )
    # For 0 and 1: z = 2 gives |0.1 - 0.2|, z = 3 gives |0 - 0.4|; mean over n - 2.
    assert madc(cosines)[0, 1] == pytest.approx(0.25)
    assert madc(cosines)[2, 3] == pytest.approx((abs(0.1 - 0) + abs(0.2 - 0.4)) / 2)


def test_madc_of_two_is_their_cosine_distance():
    assert madc(np.array([[1, 0.25], [0.25, 1]])).tolist() == [[0, 0.75], [0.75, 0]]
    assert madc(np.ones((1, 1))).tolist() == [[0]]


def test_dissimilarity_runs_from_zero_to_one():
    axes = [np.float32(row) for row in ([1, 1], [1, -1], [-2, -2])]
    gaps = dissimilarities(np.float32([3, 3]), axes)
    assert gaps == pytest.approx(np.array([0, 0.5, 1]), abs=1e-6)
    assert dissimilarities(np.float32([0, 0]), axes).tolist() == [0.5, 0.5, 0.5]


def test_the_nearest_model_is_the_lowest_id_on_a_tie_and_a_sum_that_by_direction():
    centres = [np.float32([2, 0]), np.float32([0, 2]), np.float32([9, 9])]
    assert nearest_model(np.float32([1, 1]), centres) == 0
    assert nearest_model(np.float32([0, 1]), centres) == 1
    sums = [np.array([0.0, 0.0]), np.array([9.0, 1.0]), np.array([0.0, 2.0])]
    assert nearest_direction(np.float32([1, 0]), sums)[0] == 1
    assert nearest_direction(np.float32([0, 5]), sums) == (2, 1.0)
    assert nearest_direction(np.float32([0, 0]), sums) == (0, 0.0)


def test_sketches_keep_cosines_within_their_standard_error():
    rng = np.random.default_rng(0)
    base = rng.normal(size=20_000)
    updates = [
        (base + spread * rng.normal(size=20_000)).astype(np.float32)
        for spread in (0.2, 0.5, 1, 2, 4, 8)
    ]
    exact = cosine_matrix(updates)
    for dimension in (256, 4096):
        errors = [
            cosine_matrix([sketch(update, dimension, seed) for update in updates])
            - exact
            for seed in range(20)
        ]
        assert np.std(errors) < np.sqrt(2 / dimension)


def test_a_sketch_is_linear_and_the_same_for_all_clients():
    one, two = random_updates(3, 2, 1000)
    both = sketch(one, 64, 7) + sketch(two, 64, 7)
    assert both.dtype == np.float32
    assert sketch(one + two, 64, 7) == pytest.approx(both, abs=1e-4)
    assert not np.array_equal(sketch(one, 64, 7), sketch(one, 64, 8))
    # Each coordinate goes to one of the places, with one of both signs.
    axes = np.array([sketch(axis, 4, 7) for axis in np.eye(40, dtype=np.float32)])
    assert (np.abs(axes).sum(axis=1) == 1).all()
    assert set(axes.sum(axis=1)) == {-1, 1}
    assert (axes != 0).any(axis=0).all()
