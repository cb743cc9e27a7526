from __future__ import annotations

import numpy as np

from cfl_flower.config.compose import compose_config
from cfl_flower.models import initial_vector
from cfl_flower.runs.checkpoint import Checkpoint
from cfl_flower.state import ClusteredState
from tests.conftest import Runner


def test_fedprox_without_the_proximal_term_is_fedavg(run_small: Runner) -> None:
    fedprox = run_small("strategy=fedprox", "strategy.local.mu=0", folder="fedprox")
    fedavg = run_small("strategy=fedavg", folder="fedavg")
    assert fedprox.numbers == fedavg.numbers
    assert compose_config(["strategy=fedprox"]).strategy.local.mu > 0


def test_a_stronger_term_leaves_the_model_nearer_to_the_received_one(
    run_small: Runner,
) -> None:
    distances = []
    for mu in (0, 1, 10):
        options = ["rounds=1", "strategy.local.learning_rate=0.05"]
        run = run_small(
            "strategy=fedprox", *options, f"strategy.local.mu={mu}", folder=f"mu-{mu}"
        )
        config = run.config
        checkpoint = Checkpoint(run.folder / "checkpoint", config.resolved)
        _, state = checkpoint.load(ClusteredState)
        dataset = config.dataset
        received = initial_vector(config.model, dataset.shape, dataset.classes, 0)
        distances.append(float(np.linalg.norm(state.models[0] - received)))
    assert distances[0] > distances[1] > distances[2] > 0
