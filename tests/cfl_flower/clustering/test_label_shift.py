import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfl_flower.clustering.label_shift import ShiftTest

BEFORE = np.array([50, 50, 0, 0])


@pytest.mark.parametrize(
    ("current", "shifted"),
    [
        ([50, 50, 0, 0], False),
        # 10 of 100 samples replaced: an L1 change of 20, not above 20%.
        ([40, 50, 10, 0], False),
        ([40, 49, 11, 0], True),
        # A fifth of the 100 samples before, not of the 121 of now.
        ([71, 50, 0, 0], True),
        # A quarter of the samples has gone, and nothing else.
        ([40, 35, 0, 0], True),
        ([0, 0, 50, 50], True),
        ([0, 0, 0, 0], True),
    ],
)
def test_a_change_of_more_than_a_fifth_of_the_samples_is_a_shift(current, shifted):
    assert ShiftTest().detects(np.array(current), BEFORE) is shifted


def test_the_reference_metric_ignores_which_labels_changed():
    reference = ShiftTest(metric="reference")
    assert not reference.detects(np.array([0, 0, 50, 50]), BEFORE)
    # Sorted: 0 0 50 50 against 0 0 30 30, a mean difference of 10 > 5.
    assert reference.detects(np.array([30, 30, 0, 0]), BEFORE)


@given(st.permutations([60, 30, 10, 0, 0]))
def test_the_reference_metric_ignores_permutations_of_counts(counts):
    before = np.array([60, 30, 10, 0, 0])
    assert not ShiftTest(metric="reference").detects(np.array(counts), before)
    moved = int(np.abs(np.array(counts) - before).sum())
    assert ShiftTest().detects(np.array(counts), before) is (moved > 20)
