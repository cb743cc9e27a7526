"""Selections and server optimisers work with every synchronous strategy, or say so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cfl_flower.errors import ConfigError
from cfl_flower.inprocess import InProcessGrid

pytestmark = pytest.mark.contract

Runner = Callable[..., Any]

QUICK = [
    ("fielding", "oort", "yogi"),
    ("fielding", "nearest", "qfedavg"),
    ("flexcfl", "random", "qfedavg"),
    ("stocfl", "oort", "yogi"),
]
SLOW = [
    ("static", "nearest", "yogi"),
    ("fedavg", "oort", "qfedavg"),
    ("fedprox", "random", "yogi"),
    ("ifca", "oort", "yogi"),
    ("fesem", "oort", "qfedavg"),
    ("cfl", "random", "yogi"),
    ("feddrift", "oort", "yogi"),
    ("oracle", "oort", "qfedavg"),
    ("fedrep", "oort", "yogi"),
    ("fedccfa", "oort", "yogi"),
    ("fedpac", "random", "yogi"),
    ("adapfedavg", "oort", "yogi"),
    ("scaffold", "oort", "average"),
    ("flash", "oort", "average"),
    ("local", "oort", "average"),
]
SAMPLE = [*QUICK, *(pytest.param(*each, marks=pytest.mark.slow) for each in SLOW)]


@pytest.mark.parametrize(("strategy", "selection", "optimizer"), SAMPLE)
def test_a_run_with_them_is_the_same_on_any_node_and_after_a_break(
    strategy: str, selection: str, optimizer: str, run_small: Runner
) -> None:
    options = [f"strategy={strategy}", f"selection={selection}", "drift.rounds=[]"]
    options += [f"server_optimizer={optimizer}", "devices.over_commitment=1.3"]
    if optimizer == "yogi":
        options.append("server_optimizer.learning_rate=0.03")
    whole = run_small(*options)
    assert whole.rounds[-1]["loss"] < whole.rounds[0]["loss"]
    run_small(*options, "rounds=2", folder="parts")
    nodes = InProcessGrid([{}, {}, {}])
    parts = run_small(*options, "resume=true", folder="parts", grid=nodes)
    assert parts.numbers == whole.numbers


@pytest.mark.parametrize(
    ("overrides", "part"),
    [
        (["strategy=flash", "server_optimizer=yogi"], "a step of its own"),
        (["strategy=stocfl", "server_optimizer=qfedavg"], "the loss of one received"),
        (["strategy=fedrep", "server_optimizer=qfedavg"], "the loss of one received"),
        (["strategy=ccfl", "selection=oort"], "which selects nobody"),
        (["strategy=fedavg", "selection=nearest"], "no representations"),
        (["server_optimizer=yogi", "server_optimizer.tau=0"], "a number above 0"),
        (["server_optimizer=qfedavg", "server_optimizer.q=-1"], "at least 0"),
        (["selection=oort", "selection.pacer_delta=0"], "above 0 and at most 100"),
    ],
)
def test_what_does_not_fit_is_one_line(
    overrides: list[str], part: str, run_small: Runner
) -> None:
    with pytest.raises(ConfigError) as error:
        run_small(*overrides)
    assert part in str(error.value)
    assert "\n" not in str(error.value)
