import numpy as np
import pytest

from cfl_flower.engine.method import no_clusters
from strategies.adapfedavg import AdapFedAvgSettings, AdapFedAvgState, adapt_rate

SETTINGS = AdapFedAvgSettings(beta1=0.7, beta2=0.3, beta3=0.7)


def fresh(weights: int) -> AdapFedAvgState:
    return AdapFedAvgState([], no_clusters(), [], mean=np.zeros(weights, np.float32))


def test_two_rounds_by_hand():
    state = fresh(2)
    adapt_rate(state, np.float32([1, 3]), SETTINGS)
    # v = 0.7 * (1 + 9) / 2 = 3.5, corrected 5; ratio 1.
    assert state.mean == pytest.approx([0.3, 0.9])
    assert (state.variance, state.share) == pytest.approx((3.5, 1))
    adapt_rate(state, np.float32([2, 4]), SETTINGS)
    # The average, corrected, was (1, 3): distance 1; v = 0.3 * 3.5 + 0.7, corrected
    # 1.75 / 0.91; ratio 0.7 * 0.3 + 0.3 * (1.75 / 0.91 / 5), corrected by 1 - 0.49.
    growth = 1.75 / 0.91 / 5
    assert state.variance == pytest.approx(1.75)
    assert state.ratio == pytest.approx(0.21 + 0.3 * growth)
    assert state.share == pytest.approx(state.ratio / 0.51 / 2)


def test_a_model_that_stands_still_is_no_division_by_zero():
    state = fresh(1)
    for _ in range(5):
        adapt_rate(state, np.float32([0]), SETTINGS)
        assert 0 < state.share <= 1


def test_the_rate_decays_and_drift_raises_it(run_small):
    options = ["strategy=adapfedavg", "rounds=14", "participants=12"]
    steady = run_small(*options, "drift.rounds=[]", folder="steady").rounds
    drift = ["partition.purity=1", "drift.rounds=[8]"]
    drifting = run_small(*options, *drift, folder="drifting").rounds
    assert steady[0]["learning_rate"] == 0.1
    rates = [row["learning_rate"] for row in steady]
    assert rates[-1] < 0.1 * rates[0]
    after = [row["learning_rate"] * row["round"] for row in drifting]
    assert max(after[8:11]) > 1.2 * after[7]
