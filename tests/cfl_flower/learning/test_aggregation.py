import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfl_flower.learning.aggregation import (
    Average,
    FedYogi,
    QFedAvg,
    RunningMean,
    mean_model,
    mix_models,
)


def test_many_small_shares_do_not_lose_digits():
    # A sum of 10,000 float32 shares would be off in the fourth digit.
    models = [np.float32([1.1])] * 10_000
    assert mean_model(models)[0] == np.float32(1.1)
    # Nor does the product with a weight: 3 * 0.1 is 0.3 in float32, not in float64.
    tenth, rest = np.float32([0.1]), np.float32([-0.3])
    exact = (3 * float(tenth[0]) + float(rest[0])) / 4
    assert mean_model([tenth, rest], [3, 1])[0] == np.float32(exact) != 0
    mean = RunningMean()
    mean.add(tenth)
    mean.add(-tenth, 3)
    assert mean.value() == pytest.approx([-0.05])


def test_a_mixture_skips_models_without_a_share():
    models = [np.float32([1, 1]), np.float32([np.nan, np.nan]), np.float32([3, 5])]
    mixed = mix_models(models, np.array([[0.5, 0, 0.5], [0, 0, 1]]))
    assert [model.tolist() for model in mixed] == [[2, 3], [3, 5]]


def test_a_mean_needs_as_many_weights_as_models():
    with pytest.raises(ValueError, match="zip"):
        mean_model([np.float32([1])], [1, 1])


def test_a_running_mean_equals_the_mean():
    rng, mean = np.random.default_rng(0), RunningMean()
    models = list(rng.normal(size=(7, 5)).astype(np.float32))
    weights = rng.integers(1, 9, 7).astype(float).tolist()
    assert not mean
    for model, weight in zip(models, weights, strict=True):
        mean.add(model, weight)
    assert mean.value().tolist() == mean_model(models, weights).tolist()
    expected = np.average(np.array(models, float), axis=0, weights=weights)
    assert mean.value() == pytest.approx(expected, rel=1e-6)


def test_yogis_first_steps_equal_those_computed_by_hand():
    yogi = FedYogi(learning_rate=1.0, tau=0.01, beta1=0.9, beta2=0.99)
    model, mean = np.float32([1.0]), np.float32([2.0])
    fresh, (first, second) = yogi.step(model, mean, 1, [])
    # m = 0.1 * 1; v = 0.01 - 0.01 * 1 * sign(0.01 - 1) = 0.02.
    assert first == pytest.approx(0.1)
    assert second == pytest.approx(0.02)
    assert fresh == pytest.approx(1 + 0.1 / (0.02**0.5 + 0.01))
    assert fresh.dtype == np.float32
    _, (first, second) = yogi.step(model, mean, 1, [first, second])
    assert first == pytest.approx(0.19)
    assert second == pytest.approx(0.03)


def test_running_statistics_are_averaged_whatever_the_optimiser():
    model, mean = np.float32([1, 5, 5]), np.float32([2, 7, 9])
    for optimiser in (Average(), FedYogi()):
        fresh, memory = optimiser.step(model, mean, 1, [])
        assert fresh[1:].tolist() == [7, 9]
        assert [len(moment) for moment in memory] == [1] * len(memory)
    fair = QFedAvg().combine(model, [mean, mean + 2], np.array([1.0, 2.0]), 1)
    assert fair[1:].tolist() == [8, 10]


@given(st.integers(0, 99))
def test_without_fairness_qfedavg_is_the_plain_mean(seed):
    rng = np.random.default_rng(seed)
    model, *results = rng.normal(size=(4, 5)).astype(np.float32)
    fair = QFedAvg(q=0, learning_rate=0.05).combine(model, results, rng.random(3), 5)
    assert fair == pytest.approx(np.mean(results, 0), abs=1e-5)


def test_qfedavg_equals_the_value_computed_by_hand():
    # Gradients -2 and -4; sum F^q g = 9 (-2) + 1 (-4) = -22; the curvature is
    # q F^(q-1) |g|^2 + F^q / eta, (24 + 18) + (32 + 2) = 76.
    model, results = np.float32([0]), [np.float32([1]), np.float32([2])]
    optimiser = QFedAvg(q=2, learning_rate=0.5)
    fair = optimiser.combine(model, results, np.array([3.0, 1.0]), 1)
    assert fair == pytest.approx([22 / 76])
    # Whatever q, the client of the largest loss decides: 18 / (q / 3 * 4 + 2).
    fair = QFedAvg(q=900, learning_rate=0.5).combine(
        model, results, np.array([3.0, 1.0]), 1
    )
    assert fair == pytest.approx([2 / 1202])
