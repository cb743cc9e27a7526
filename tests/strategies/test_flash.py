from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cfl_flower.config import compose_config
from cfl_flower.errors import ConfigError
from strategies.flash import FlashSettings, flash_step

Runner = Callable[..., Any]
SETTINGS = FlashSettings()


def test_a_step_by_hand() -> None:
    moments = (np.array([0.5]), np.array([4.0]), np.array([1.0]))
    model, (m, v, d) = flash_step(np.array([10.0]), np.array([3.0]), moments, SETTINGS)
    assert m == pytest.approx([0.75])
    assert v == pytest.approx([4.05])
    share = 4 / (9 - 4.05 + 4)
    assert d == pytest.approx([share + (1 - share) * 4.95])
    assert model == pytest.approx(10 + 0.0075 / (np.sqrt(4.05) - d + 0.001))


def test_the_guard_keeps_steps_finite_and_in_the_right_direction() -> None:
    # d above sqrt(v): as published, the step goes the wrong way.
    moments = (np.array([1.0]), np.array([0.01]), np.array([5.0]))
    wrong, _ = flash_step(np.zeros(1), np.ones(1), moments, SETTINGS)
    guarded, _ = flash_step(
        np.zeros(1), np.ones(1), moments, replace(SETTINGS, guard=True)
    )
    assert wrong < 0 < guarded
    assert guarded == pytest.approx([0.01 * 1.0 / 0.001])


def test_clients_stop_early(run_small: Runner) -> None:
    options = ["strategy=flash", "strategy.local.epochs=20", "drift.rounds=[]"]
    patient = run_small(*options, "strategy.stop=0", folder="patient")
    hasty = run_small(*options, "strategy.stop=1000", folder="hasty")
    assert patient.rounds[0]["loss"] != hasty.rounds[0]["loss"]
    two = ["strategy.local.epochs=2", "strategy.stop=0"]
    short = run_small(*options, *two, folder="short")
    # Where nothing is enough, a client stops after the second epoch if that helped.
    assert hasty.rounds[0]["loss"] == pytest.approx(short.rounds[0]["loss"], rel=0.05)


def test_bad_settings_are_one_line() -> None:
    with pytest.raises(ConfigError, match=r"strategy.tau=0.0 is not allowed"):
        compose_config(["strategy=flash", "strategy.tau=0"])
