from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cfl_flower.config import compose_config

Runner = Callable[..., Any]


def test_without_the_proximal_term_it_is_fedavg(run_small: Runner) -> None:
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
