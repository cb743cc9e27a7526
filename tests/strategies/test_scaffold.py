from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from cfl_flower.models import initial_vector
from clients.scaffold import control_change


def test_the_change_of_a_control_by_hand():
    # From 3 to 1 in 4 steps of 0.1: a mean gradient of 5.
    control, start, end = np.float32([2]), np.float32([3]), np.float32([1])
    assert control_change(control, start, end, 4, 0.1) == pytest.approx([3])


@pytest.mark.parametrize("rounds", [1, 3])
def test_the_servers_control_is_the_mean_of_all_clients_controls(rounds, run_small):
    # With c = c_i = 0 at first, and 0 still for those who took no part.
    options = ["strategy=scaffold", "drift.rounds=[]", "participants=6"]
    run = run_small(*options, "strategy.local.batch_size=500", f"rounds={rounds}")
    folders = Path(run.folder, "clients").glob("*/control")
    newest = [max(folder.glob("*.safetensors")) for folder in folders]
    own = np.stack([load_file(file)["own"] for file in newest])
    assert own.shape[1] == 650
    assert len(own) == 6 if rounds == 1 else 6 < len(own) < 12
    assert run.state.control == pytest.approx(own.sum(axis=0) / 12, abs=1e-6)


def test_the_server_goes_its_rate_of_the_way(run_small):
    options = ["strategy=scaffold", "participants=12", "rounds=1"]
    found = []
    for rate in (0.5, 1):
        run = run_small(*options, f"strategy.global_rate={rate}", folder=str(rate))
        (saved,) = Path(run.folder, "checkpoint").glob("*.safetensors")
        found.append(load_file(saved)[".models.0"])
    start = initial_vector(run.config.model, (1, 8, 8), 10, 0)
    assert found[0] == pytest.approx((start + found[1]) / 2, abs=1e-6)
