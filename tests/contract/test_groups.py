"""Options of groups work with every method, or it says so."""

import re

import numpy as np
import pytest

from cfl_flower.config.compose import compose_config
from cfl_flower.environment.plugins import CONF
from cfl_flower.errors import ConfigError
from cfl_flower.server_app import open_stream
from simulations.engines.inprocess import InProcessGrid
from tests.conftest import SMALL, WHOLE, open_method, sample
from tests.contract.test_strategies import WITHOUT_ROUNDS, _KilledError, _killing_app

pytestmark = pytest.mark.contract

QUICK = [
    ("fielding", "oort", "yogi"),
    ("fielding", "nearest", "qfedavg"),
    ("flexcfl", "random", "qfedavg"),
    ("stocfl", "oort", "yogi"),
]
OTHERS = {
    "static": ("nearest", "yogi"),
    "fedavg": ("oort", "qfedavg"),
    "oracle": ("oort", "qfedavg"),
    **dict.fromkeys(
        ["feroma", "pfedme", "scaffold", "flash", "local_rounds"], ("oort", "average")
    ),
    **dict.fromkeys(["cfl", "fedpac", "fedprox"], ("random", "yogi")),
}
"""What other strategies are tried with, if not with Oort and Yogi."""
NAMES = {path.stem for path in (CONF / "strategy").glob("*.yaml")}
SLOW = [
    (name, *OTHERS.get(name, ("oort", "yogi")))
    for name in sorted(NAMES - {each[0] for each in QUICK})
    # All clients of `local` train when their data arrive, whoever is selected.
    if f"strategy={name}" not in WITHOUT_ROUNDS and name != "local"
]
EVERY = [*QUICK, *SLOW]
SAMPLE = [*QUICK, *(pytest.param(*each, marks=WHOLE) for each in SLOW)]


def with_extractor(strategy: str) -> list[str]:
    """Return a model with a shared part for methods that average nothing else."""
    shares = strategy in ("fedrep", "fedbabu", "fedccfa", "fedpac")
    return ["model=mlp", "model.hidden=16"] * shares


@pytest.mark.parametrize(("strategy", "selection", "optimizer"), SAMPLE)
def test_options_give_the_same_run_on_any_nodes_and_after_a_break(
    strategy, selection, optimizer, run_small
):
    options = [f"strategy={strategy}", f"selection={selection}", "drift.rounds=[]"]
    options += [f"server_optimizer={optimizer}", *with_extractor(strategy)]
    if optimizer == "yogi":
        options.append("server_optimizer.learning_rate=0.03")
    whole = run_small(*options)
    assert whole.rounds[-1]["loss"] < whole.rounds[0]["loss"]
    run_small(*options, "rounds=2", folder="parts")
    nodes = InProcessGrid([{}, {}, {}])
    parts = run_small(*options, "resume=true", folder="parts", grid=nodes)
    assert parts.numbers == whole.numbers


CHANGED = [
    pytest.param(*each, marks=[] if each[0] == "fielding" else WHOLE)
    for each in [
        *((strategy, "selection", chosen) for strategy, chosen, _ in EVERY),
        *((strategy, "server_optimizer", step) for strategy, _, step in EVERY),
    ]
    if each[2] not in ("random", "average")
]


@pytest.mark.parametrize(("strategy", "group", "choice"), CHANGED)
def test_an_option_has_an_effect(strategy, group, choice, run_small, undisturbed):
    """One that a strategy ignored would pass every other test."""
    # With three in a round, and rounds enough, some are seen and others are not.
    options = [f"strategy={strategy}", "drift.rounds=[]", "participants=3", "rounds=6"]
    options += with_extractor(strategy)
    plain = undisturbed(*options)
    changed = run_small(*options, f"{group}={choice}")
    # A selection by losses begins when there are some; an optimiser at once.
    first = 2 if choice == "oort" else 0
    assert changed.rounds[first:] != plain.rounds[first:]
    losses = [[row["loss"] for row in run.rounds] for run in (plain, changed)]
    assert losses[0] != losses[1]


@pytest.mark.parametrize("strategy", sorted({each[0] for each in EVERY}))
def test_every_client_reports_the_loss_that_it_is_selected_by(strategy, tmp_path):
    """Without one, Oort's utility would be the number of samples."""
    asked = [f"strategy={strategy}", "selection=oort", "drift.rounds=[]", "rounds=1"]
    carried = open_method(tmp_path, *SMALL, *asked, *with_extractor(strategy))
    carried.engine.run()
    assert not carried.run.record.failures
    history, stream = carried.state.history, open_stream(carried.run.config)
    rows = np.flatnonzero(history.last)
    counts = [len(stream.view(carried.state.clients[row], 1).labels) for row in rows]
    losses = history.utility[rows] / counts
    # ln 10 for a network that knows nothing; FlexCFL's groups begin with an update.
    assert len(np.unique(losses)) == len(rows)
    assert ((losses > 0.3) & (losses < 5)).all()


# Local training


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

QUICK_LOCAL = {"fedavg", "scaffold", "fedccfa"}

METHODS = sample(sorted(NAMES), QUICK_LOCAL)

SMALL_LOCAL = ["model=mlp", "model.hidden=8", "rounds=2", "drift.rounds=[2]"]


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
    run = run_small(f"strategy={method}", *SMALL_LOCAL, *options)
    assert not run.failures
    plain = run_small(f"strategy={method}", *SMALL_LOCAL, folder="plain")
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
