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


def test_its_preset_has_a_proximal_term_that_matters(run_small: Runner) -> None:
    assert compose_config(["strategy=fedprox"]).strategy.local.mu > 0
    fedprox = run_small("strategy=fedprox", folder="fedprox")
    fedavg = run_small("strategy=fedavg", folder="fedavg")
    assert fedprox.rounds[-1]["loss"] != fedavg.rounds[-1]["loss"]


def test_a_strong_term_keeps_clients_at_the_received_model(run_small: Runner) -> None:
    # w - w_received shrinks as 1 / mu; learning_rate * mu stays below 1.
    options = ["strategy=fedprox", "strategy.local.learning_rate=0.001"]
    loose = run_small(*options, "strategy.local.mu=0", folder="loose")
    tight = run_small(*options, "strategy.local.mu=900", folder="tight")
    start = loose.rounds[0]["loss"]
    assert start - loose.rounds[-1]["loss"] > 3 * (start - tight.rounds[-1]["loss"])


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
