"""In what two clients differ, by their sums: against the same tests on samples."""

import numpy as np
import pytest
from scipy import stats

from cfl_flower.clustering.differences import (
    AXES,
    LEAST_OF_LABEL,
    differences,
    from_vector,
    shape_of,
    sums_by_label,
    to_vector,
)
from cfl_flower.types import FloatArray, IntArray

KINDS = ("labels", "inputs", "relation")


def draw(seed: int, n: int, inputs: int, labels: int) -> tuple[FloatArray, IntArray]:
    """Return samples whose labels shift their inputs, of every label as many."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % labels
    means = np.random.default_rng(0).normal(size=(labels, inputs))
    return rng.normal(size=(n, inputs)) + means[y], y


def compare(one: tuple[FloatArray, IntArray], other: tuple[FloatArray, IntArray]):
    return differences(*(sums_by_label(*of, 4) for of in (one, other)))


def test_with_equal_counts_sums_tell_what_samples_tell():
    x, y = draw(2, 108, 3, 3)
    y[:12] = np.roll(y[:12], 1)
    sides = [draw(1, 108, 3, 3), (1.1 * x, y)]
    found = compare(*sides)
    assert found[0] == pytest.approx(1)
    # Means of z and |z|, with variances within labels.
    p = []
    for axis in range(6):
        of = [x[:, axis] if axis < 3 else np.abs(x[:, axis - 3]) for x, _ in sides]
        within = [
            sum(((v[y == k] - v[y == k].mean()) ** 2).sum() for k in range(3))
            for v, (_, y) in zip(of, sides, strict=True)
        ]
        error = np.sqrt(sum(within) / (108 - 3) / 108)
        t = abs(of[0].mean() - of[1].mean()) / error
        p.append(2 * stats.t.sf(t, 2 * (108 - 3)))
    assert found[1] == pytest.approx(min(1, 6 * min(p)))
    # Chow's test of each label, on inputs of each client's own scale.
    scaled = []
    for x, y in sides:
        z = np.column_stack([np.ones(108), (x - x.mean(0)) / x.std(0)])
        scaled.append((z, np.eye(3)[y]))

    def left(z: FloatArray, y: FloatArray) -> FloatArray:
        return ((y - z @ np.linalg.lstsq(z, y, rcond=None)[0]) ** 2).sum(axis=0)

    alone = left(*scaled[0]) + left(*scaled[1])
    both = left(*(np.concatenate(of) for of in zip(*scaled, strict=True)))
    f = (both - alone) / 4 / (alone / (2 * 108 - 8))
    expected = 3 * stats.f.sf(f, 4, 2 * 108 - 8).min()
    assert found[2] == pytest.approx(min(1, expected))


@pytest.mark.parametrize("inputs", [3, 100])
@pytest.mark.parametrize("offset", [0, 2000])
@pytest.mark.parametrize("kind", ["nothing", *KINDS])
def test_what_differs_is_found_and_nothing_else(kind, offset, inputs):
    one = draw(1, 240, inputs, 4)
    x, y = draw(2, 240, inputs, 4)
    if kind == "labels":
        rows = np.flatnonzero((y != 0) | (np.arange(240) % 20 == 0))
        x, y = x[rows], y[rows]
    if kind == "inputs":
        x = x + 2
    if kind == "relation":
        y = np.array([0, 2, 1, 3])[y]
    # As years: in float32 alone, sums would lose what differs.
    sums = [sums_by_label(at + offset, of, 4) for at, of in (one, (x, y))]
    shape = shape_of(inputs, 4)
    read = [from_vector(to_vector(each), shape) for each in sums]
    assert all(each is not None for each in read)
    found = differences(*read)
    assert [p < 0.01 for p in found] == [kind == each for each in KINDS]


@pytest.mark.parametrize("n", [24, 90, 240])
@pytest.mark.parametrize("skewed", [False, True])
def test_equal_clients_differ_as_rarely_as_the_level_says(n, skewed):
    rng = np.random.default_rng(5)
    found = []
    for _ in range(300):
        sides = []
        for size in (n, 3 * n):
            y = rng.integers(0, 3, size)
            x = rng.normal(size=(size, 5)) + y[:, None]
            sides.append((np.exp(x) if skewed else x, y))
        found.append(compare(*sides))
    # Four standard errors above 5%.
    assert np.all(np.mean(np.array(found) < 0.05, axis=0) < 0.05 + 4 * 0.0126)


def test_without_common_labels_only_labels_can_differ():
    x, y = draw(1, 40, 3, 2)
    assert compare((x, y), (x, y + 2))[1:] == [1, 1]
    few = compare((x[:18], y[:18]), (x, y))
    assert few[1:] == [1, 1]
    nobody = np.zeros((0, 3)), np.zeros(0, int)
    assert compare(nobody, (x, y)) == [1, 1, 1]
    assert compare(nobody, nobody) == [1, 1, 1]


@pytest.mark.parametrize("x", [np.ones((40, 3)), np.eye(40)[:, :30]])
def test_inputs_without_spread_are_no_error(x):
    y = np.arange(40) % 2
    assert compare((x, y), (x, y)) == pytest.approx([1, 1, 1])
    assert np.isfinite(compare((x, y), (x, 1 - y))).all()


def test_of_few_samples_of_a_label_the_count_alone_leaves():
    x, y = draw(1, 40, 3, 2)
    y[:3] = 3
    sums = sums_by_label(x, y, 4)
    assert sums[3, 0, 0] == 3 < LEAST_OF_LABEL
    assert sums[3].sum() == 3
    assert sums[2].sum() == 0
    assert (sums[:2] != 0).all()


def test_axes_are_few_and_the_same_for_all():
    x, y = draw(1, 40, 3 * AXES, 2)
    images = x.reshape(40, 3, 2, AXES // 2)
    sums = sums_by_label(images, y, 2)
    assert sums.shape == shape_of(3 * AXES, 2) == (2, AXES + 2, AXES + 1)
    assert (sums == sums_by_label(x, y, 2)).all()


@pytest.mark.parametrize(
    ("place", "number"),
    [
        ((0, 0, 0), -1),
        ((0, 0, 0), 0.5),
        ((0, 0, 0), np.nan),
        ((0, 1, 1), -1),
        ((0, 0, 1), 1e9),
        ((0, -1, 1), 1e9),
        ((1, 2, 1), np.inf),
    ],
)
def test_sums_that_no_samples_have_are_none(place, number):
    sums = sums_by_label(*draw(1, 40, 3, 2), 2)
    assert from_vector(to_vector(sums), sums.shape) is not None
    sums[place] = number
    with np.errstate(invalid="ignore"):
        assert from_vector(to_vector(sums), sums.shape) is None
