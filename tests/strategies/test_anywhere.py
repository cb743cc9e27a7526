"""What a server makes of updates is the same wherever the models are."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfl_flower.types import Result
from tests.conftest import open_method

CLIENTS = 8
FAR = 1024.0
"""Added to all weights of all models; the updates are exact beside it."""

METHODS = {
    "auxo": ["strategy.split_rounds=[2]", "strategy.smallest=2"],
    # Their true cosines are -1: nothing that is less may pass for them.
    "cfl": [
        *("strategy.first=0", "strategy.norms=relative", "strategy.gamma=0.9"),
        *("strategy.eps1=0.5", "strategy.eps2=0.75"),
    ],
    "fesem": ["clusters=3"],
    "flash": [],
    "pfedme": ["strategy.beta=0.5"],
    "fedavg": ["server_optimizer=yogi"],
}


def updates(length: int) -> np.ndarray:
    """Return updates of which the odd ones are opposite to the even ones, (n, d)."""
    rng = np.random.default_rng(0)
    # Halves and quarters: exact beside `FAR`.
    steps = rng.integers(-8, 9, length) / 4
    signs = np.where(np.arange(CLIENTS) % 2, -1, 1)
    return np.outer(signs, steps).astype(np.float32)


def after_two_rounds(folder: Path, name: str, offset: float) -> Any:
    """Return the state of a method whose clients trained models with an offset."""
    options = [f"strategy={name}", f"clients={CLIENTS}", f"participants={CLIENTS}"]
    method = open_method(folder, *options, *METHODS[name])
    method.engine.context.begin(1)
    method.welcome(1, [Result(client, 5) for client in range(CLIENTS)])
    state = method.state
    # Rounded, so that an offset takes nothing of them away.
    state.models = [
        np.round(16 * each) / 16 + np.float32(offset) for each in state.models
    ]
    for number in (1, 2):
        method.engine.context.begin(number)
        plan = method.plan_train(number)
        found = updates(len(state.models[0]))
        results = [
            Result(task.client, 5, [plan.models[task.models[0]] + found[task.client]])
            for task in plan.tasks
        ]
        method.absorb_train(number, method.engine.delivery.read("train", results))
    return state


@pytest.mark.parametrize("name", METHODS)
def test_models_far_from_zero_are_clustered_and_moved_alike(name, tmp_path):
    near, far = (after_two_rounds(tmp_path / str(o), name, o) for o in (0.0, FAR))
    assert far.clusters.tolist() == near.clusters.tolist()
    assert len(far.models) == len(near.models)
    for one, other in zip(near.models, far.models, strict=True):
        np.testing.assert_allclose(other - np.float32(FAR), one, atol=2e-3)
    if name in ("auxo", "cfl"):
        assert len(set(far.clusters.tolist())) == 2
