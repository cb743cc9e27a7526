from __future__ import annotations

from cfl_flower.config.compose import compose_config
from tests.conftest import Runner


def test_fedprox_without_the_proximal_term_is_fedavg(run_small: Runner) -> None:
    fedprox = run_small("strategy=fedprox", "strategy.local.mu=0", folder="fedprox")
    fedavg = run_small("strategy=fedavg", folder="fedavg")
    assert fedprox.numbers == fedavg.numbers
    assert compose_config(["strategy=fedprox"]).strategy.local.mu > 0
