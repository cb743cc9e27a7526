"""Every setting of local training with every method: it works or is refused."""

import re

import pytest

from cfl_flower.config.compose import compose_config
from cfl_flower.config.warnings import find_warnings
from cfl_flower.environment.plugins import CONF
from cfl_flower.errors import ConfigError
from simulations.engines.inprocess import InProcessGrid
from tests.contract.test_strategies import _KilledError, _killing_app

EVERYTHING = {
    "strategy.local.optimizer": "adamw",
    "strategy.local.learning_rate": "0.01",
    "strategy.local.schedule": "cosine",
    "strategy.local.warmup": "1",
    "strategy.local.clip": "1",
    "strategy.local.label_smoothing": "0.1",
    "strategy.local.precision": "bf16",
    "strategy.local.augment": "[random_crop]",
}

REFUSED = {
    "scaffold": ("optimizer", "sgd without optimizer_settings: controls are mean"),
    "pfedme": ("optimizer", "sgd without optimizer_settings: theta takes K steps"),
    "adapfedavg": ("schedule", "null: the server adapts the rate"),
}
"""The setting that a method cannot work with; it does with all others."""

QUICK = {"fedavg", "scaffold", "fedccfa"}

METHODS = [
    pytest.param(path.stem, marks=[] if path.stem in QUICK else pytest.mark.slow)
    for path in sorted((CONF / "strategy").glob("*.yaml"))
]

SMALL = ["model=mlp", "model.hidden=8", "rounds=2", "drift.rounds=[2]"]


@pytest.mark.contract
@pytest.mark.parametrize("method", METHODS)
def test_all_settings_with_every_method(method, run_small):
    chosen = dict(EVERYTHING)
    if method in REFUSED:
        name, words = REFUSED[method]
        key = f"strategy.local.{name}"
        one = f"{key}={chosen.pop(key)}"
        with pytest.raises(ConfigError, match=f"^{re.escape(one)}.*{words}"):
            compose_config([f"strategy={method}", one])
        if name == "schedule":
            del chosen["strategy.local.warmup"]
    options = [f"{key}={value}" for key, value in chosen.items()]
    run = run_small(f"strategy={method}", *SMALL, *options)
    assert not run.failures
    plain = run_small(f"strategy={method}", *SMALL, folder="plain")
    assert run.numbers != plain.numbers
    clocks = [[row["virtual_seconds"] for row in each.rounds] for each in (run, plain)]
    if method in {"fedavg", "fedasync", "fedbuff", "local_async", "scaffold"}:
        # What passes a device makes is what its time follows from, and nothing else.
        assert clocks[0] == clocks[1]


@pytest.mark.parametrize("method", ["fedavg", "fedprox", "fedccfa"])
def test_rates_and_draws_are_the_same_on_any_nodes_and_when_resumed(method, run_small):
    options = [f"strategy={method}", "model=mlp", "strategy.local.schedule=cosine"]
    options += ["strategy.local.augment=[random_crop,horizontal_flip]"]
    whole = run_small(*options, folder="whole", grid=InProcessGrid([{}, {}, {}]))
    with pytest.raises(_KilledError):
        run_small(*options, grid=InProcessGrid([{}], _killing_app(7)))
    assert run_small(*options, "resume=true").numbers == whole.numbers


def test_a_warmup_that_does_not_end_is_told():
    long = compose_config(["strategy.local.warmup=3", "rounds=3", "drift=none"])
    assert any("strategy.local.warmup=3" in each for each in find_warnings(long))
    short = compose_config(["strategy.local.warmup=2", "rounds=3", "drift=none"])
    assert not find_warnings(short)
