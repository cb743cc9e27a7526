import numpy as np
import pytest

from cfl_flower.errors import InvalidResultError
from cfl_flower.learning.decoupling import (
    Anchors,
    mean_anchors,
    parse_counts,
    presence_config,
    read_anchors,
)


def test_global_anchors_are_weighted_by_samples_and_never_lost():
    points = np.float32([[[1], [9], [0]], [[4], [0], [0]]])
    counts = np.array([[1.0, 2, 0], [2.0, 0, 0]])
    before = Anchors(np.float32([[7], [7], [7]]), np.array([False, True, True]))
    found = mean_anchors(points, counts, before)
    assert found.points.ravel().tolist() == [3, 9, 7]
    assert found.present.tolist() == [True, True, True]


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
