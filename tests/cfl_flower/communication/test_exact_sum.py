"""Sums of models that do not depend on who adds what."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfl_flower.communication.exact_sum import (
    BLOCK,
    COARSE,
    FINE,
    ExactSum,
    check_range,
)
from cfl_flower.errors import InvalidResultError
from cfl_flower.types import Vector

SEEDS = st.integers(0, 10**6)


def some_models(seed: int, length: int = 5) -> tuple[list[Vector], list[int]]:
    """Return models of very unequal numbers, and weights."""
    rng = np.random.default_rng(seed)
    sizes = 10.0 ** rng.integers(-7, 4, (9, length))
    models = (rng.normal(size=(9, length)) * sizes).astype(np.float32)
    return list(models), rng.integers(1, 300, 9).tolist()


def sum_of(models: list[Vector], weights: list[int]) -> ExactSum:
    """Add models in a row."""
    total = ExactSum.empty(len(models[0]))
    for model, weight in zip(models, weights, strict=True):
        total.add(model, weight)
    return total


def value(total: ExactSum, entry: int) -> Fraction:
    """Return an entry of the sum, without any rounding."""
    offsets = [
        int(np.float64(1.5 * 2.0**52 * u).view(np.int64)) for u in (COARSE, FINE)
    ]
    parts = [int(limb[entry]) for limb in total.limbs]
    wrapped = [
        (part - total.terms * offset + 2**63) % 2**64 - 2**63
        for part, offset in zip(parts, offsets, strict=True)
    ]
    return wrapped[0] * Fraction(COARSE) + wrapped[1] * Fraction(FINE)


@given(SEEDS, st.permutations(range(9)), st.integers(0, 9))
@settings(deadline=None, max_examples=40)
def test_neither_order_nor_grouping_changes_a_bit(seed, order, cut):
    models, weights = some_models(seed)
    whole = sum_of(models, weights)
    parts = ExactSum.empty(5)
    for part in (order[:cut], order[cut:]):
        if part:
            parts.merge(sum_of([models[i] for i in part], [weights[i] for i in part]))
    one = sum_of(models[:2], weights[:2])
    limbs, copied = one.limbs.tolist(), ExactSum.empty(5)
    copied.merge(one)
    copied.add(models[0], 1)
    assert one.limbs.tolist() == limbs
    assert parts.limbs.tolist() == whole.limbs.tolist()
    assert (parts.terms, parts.weight) == (whole.terms, whole.weight)
    assert parts.mean().tolist() == whole.mean().tolist()
    sent = ExactSum(whole.limbs, whole.terms, whole.weight)
    assert sent.mean().tolist() == whole.mean().tolist()


@given(SEEDS)
@settings(deadline=None, max_examples=30)
def test_a_sum_is_that_of_the_fractions(seed):
    models, weights = some_models(seed)
    large = [np.where(abs(model) < 2.0**-31, 0, model) for model in models]
    total = sum_of(large, weights)
    for entry in range(5):
        pairs = zip(large, weights, strict=True)
        exact = sum(w * Fraction(float(model[entry])) for model, w in pairs)
        assert value(total, entry) == exact
        # One rounding to float64 for each limb and the quotient, one to float32.
        assert total.mean()[entry] == pytest.approx(float(exact) / sum(weights), 1e-7)


def test_numbers_below_the_finest_unit_are_rounded_to_it():
    tiny = np.float32([2.0**-56, -(2.0**-57), 1.4 * 2.0**-55, 1e-45])
    total = sum_of([tiny], [1])
    assert [value(total, i) / Fraction(FINE) for i in range(4)] == [0, 0, 1, 0]


@given(SEEDS)
@settings(deadline=None, max_examples=20)
def test_mean_of_one_is_itself(seed):
    rng = np.random.default_rng(seed)
    model = rng.normal(size=6).astype(np.float32)
    # What was added is a copy: a worker's array is written again.
    total, sent = ExactSum.empty(6), model.copy()
    total.add(sent, 977)
    sent[:] = 0
    assert total.mean().tolist() == model.tolist()
    assert total.mean().dtype == np.float32


def test_models_without_parameters_have_a_sum():
    # A network that is all classifier has an empty extractor.
    nothing = np.zeros(0, np.float32)
    check_range(nothing, 1)
    total = sum_of([nothing] * 2, [1, 1])
    assert total.is_possible()
    assert total.mean().size == 0


def test_a_sum_goes_over_all_blocks():
    model = np.arange(2 * BLOCK + 7, dtype=np.float32)
    assert np.array_equal(sum_of([model, model], [1, 3]).mean(), model)


@pytest.mark.parametrize(("limb", "sign"), [(0, 1), (0, -1), (1, 1), (1, -1)])
def test_a_sum_that_no_models_have_is_impossible(limb, sign):
    # Two terms below 2^31 are at most 2^32, in units of 2^-12.
    total = sum_of([np.zeros(3, np.float32)] * 2, [1, 1])
    total.limbs[limb, 1] += sign * 2**44
    assert total.is_possible()
    total.limbs[limb, 1] += sign
    assert not total.is_possible()


def test_extremes_of_the_range_fit():
    edge = np.float32([2.0**31 - 128, -(2.0**31) + 128])
    check_range(edge, 1)
    total = sum_of([edge] * 1000, [1] * 1000)
    assert total.mean().tolist() == edge.tolist()


@pytest.mark.parametrize(("number", "weight"), [(2.0**31, 1), (-3e8, 8), (np.nan, 1)])
def test_entries_beyond_the_range_are_refused(number, weight):
    with pytest.raises(InvalidResultError) as caught:
        check_range(np.float32([0, number]), weight)
    assert caught.value.reason == "range"
