from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from cfl_flower.models import initial_vector
from clients.scaffold import control_change
from tests.conftest import Runner


def test_the_change_of_a_control_by_hand() -> None:
    # From 3 to 1 in 4 steps of 0.1: a mean gradient of 5.
    control, start, end = np.float32([2]), np.float32([3]), np.float32([1])
    assert control_change(control, start, end, 4, 0.1) == pytest.approx([3])


def test_one_full_batch_step_leaves_the_gradient_as_control(run_small: Runner) -> None:
    # With c = c_i = 0 at first, x - y = eta g, so c_i is the gradient of round 1, and
    # c the mean over all 12 clients, of whom 6 took no part and have 0.
    options = ["strategy=scaffold", "drift.rounds=[]", "participants=6", "rounds=1"]
    run = run_small(*options, "strategy.local.batch_size=500")
    files = sorted(Path(run.folder, "clients").glob("*/control/*.safetensors"))
    own = np.stack([load_file(file)["own"] for file in files])
    assert own.shape == (6, 650)
    (saved,) = Path(run.folder, "checkpoint").glob("*.safetensors")
    assert load_file(saved)[".control"] == pytest.approx(own.sum(axis=0) / 12, abs=1e-6)


def test_the_server_goes_its_rate_of_the_way(run_small: Runner) -> None:
    options = ["strategy=scaffold", "participants=12", "rounds=1"]
    found = []
    for rate in (0.5, 1):
        run = run_small(*options, f"strategy.global_rate={rate}", folder=str(rate))
        (saved,) = Path(run.folder, "checkpoint").glob("*.safetensors")
        found.append(load_file(saved)[".models.0"])
    start = initial_vector(run.config.model, (1, 8, 8), 10, 0)
    assert found[0] == pytest.approx((start + found[1]) / 2, abs=1e-6)


def test_controls_double_the_traffic(run_small: Runner) -> None:
    rows = run_small("strategy=scaffold").rounds
    assert {(r["bytes_up"], r["bytes_down"]) for r in rows} == {(6 * 2 * 2600,) * 2}
