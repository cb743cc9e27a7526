from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from cfl_flower.config.compose import compose_config
from cfl_flower.types import Result
from tests.conftest import open_method

ME = ["strategy=pfedme", "drift.rounds=[]", "participants=12"]


def models(run: Any, client: int = 0) -> np.ndarray:
    """Return the model that a client keeps."""
    path = sorted(Path(run.folder, "clients", str(client)).glob("*.safetensors"))[-1]
    return load_file(path)["model"]


def test_the_copy_moves_a_little_towards_the_personal_model(run_small):
    # One batch: w_i = w + eta lambda (theta - w).
    once = ["rounds=1", "strategy.local.batch_size=500", "strategy.attraction=2"]
    local = models(run_small(*ME, *once, "strategy.tested=local", folder="local"))
    kept = run_small(*ME, *once, folder="personal")
    personal = models(kept)
    config = compose_config(["strategy=pfedme", "model=mclr"])
    shape, classes = config.dataset.shape, config.dataset.classes
    from cfl_flower.models import initial_vector

    start = initial_vector(config.model, shape, classes, 0)
    assert local - start == pytest.approx(0.01 * 2 * (personal - start), abs=1e-7)


@pytest.mark.parametrize("beta", [0.25, 1.0, 2.0])
def test_the_server_moves_by_beta_towards_the_mean(beta, tmp_path):
    method = open_method(tmp_path, "strategy=pfedme", f"strategy.beta={beta}")
    length = len(method.state.models[0])
    method.state.models = [np.full(length, 4, np.float32)]
    results = [Result(n, 1, [np.full(length, n, np.float32)]) for n in (9, 15)]
    method.absorb_train(1, results)
    assert method.state.models[0] == pytest.approx(4 + beta * (12 - 4))
