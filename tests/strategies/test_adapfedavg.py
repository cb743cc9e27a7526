from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cfl_flower.config.compose import compose_config
from cfl_flower.errors import ConfigError
from strategies.adapfedavg import Averages, follow

Runner = Callable[..., Any]
BETAS = (0.7, 0.3, 0.7)


def test_two_rounds_by_hand() -> None:
    zero = Averages(0, np.zeros(2), 0.0, 0.0)
    one, share = follow(zero, np.float32([1, 3]), *BETAS)
    # v = 0.7 * (1 + 9) / 2 = 3.5, corrected 5; ratio 1.
    assert one.model == pytest.approx([0.3, 0.9])
    assert (one.variance, share) == pytest.approx((3.5, 1))
    two, share = follow(one, np.float32([2, 4]), *BETAS)
    # The average, corrected, was (1, 3): distance 1; v = 0.3 * 3.5 + 0.7, corrected
    # 1.75 / 0.91; ratio 0.7 * 0.3 + 0.3 * (1.75 / 0.91 / 5), corrected by 1 - 0.49.
    growth = 1.75 / 0.91 / 5
    assert two.variance == pytest.approx(1.75)
    assert two.ratio == pytest.approx(0.21 + 0.3 * growth)
    assert share == pytest.approx(two.ratio / 0.51 / 2)


def test_a_model_that_stands_still_is_no_division_by_zero() -> None:
    state = Averages(0, np.zeros(1), 0.0, 0.0)
    for _ in range(5):
        state, share = follow(state, np.float32([0]), *BETAS)
        assert 0 < share <= 1


def test_the_rate_decays_and_drift_raises_it(run_small: Runner) -> None:
    options = ["strategy=adapfedavg", "rounds=14", "participants=12"]
    steady = run_small(*options, "drift.rounds=[]", folder="steady").rounds
    drift = ["partition.purity=1", "drift.rounds=[8]"]
    drifting = run_small(*options, *drift, folder="drifting").rounds
    assert steady[0]["learning_rate"] == 0.1
    rates = [row["learning_rate"] for row in steady]
    assert rates[-1] < 0.1 * rates[0]
    after = [row["learning_rate"] * row["round"] for row in drifting]
    assert max(after[8:11]) > 1.2 * after[7]


def test_bad_settings_are_one_line() -> None:
    with pytest.raises(ConfigError, match=r"strategy.beta1=1 .*from 0 to below 1"):
        compose_config(["strategy=adapfedavg", "strategy.beta1=1"])
