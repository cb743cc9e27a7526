"""State of a network's own never passes from client to client, whatever its kind."""

import random
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import cfl_flower as cfl
from cfl_flower.config.compose import compose_config
from cfl_flower.config.warnings import find_warnings
from cfl_flower.errors import ConfigError
from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.learning.testing import evaluate
from cfl_flower.learning.training import train
from cfl_flower.models import (
    FlatModel,
    build_model,
    build_network,
    requirements,
)
from cfl_flower.models.requirements import check_network
from cfl_flower.types import Vector
from simulations.engines.inprocess import InProcessGrid
from tests.conftest import WHOLE
from tests.contract import odd_networks, refused_networks

SHAPE = (1, 8, 8)
RUN = ["strategy=fedavg", "clients=8", "participants=4", "rounds=2", "drift=none"]


def kinds(of: ModuleType) -> list[Any]:
    """Return the networks of a module."""
    found = [each for each in vars(of).values() if isinstance(each, type)]
    return [each for each in found if each.__module__ == of.__name__]


KEPT = [kind for kind in kinds(odd_networks) if kind not in odd_networks.BASES]
REFUSED = kinds(refused_networks)


def named(kind: type[nn.Module]) -> str:
    return f"model._target_={kind.__module__}.{kind.__qualname__}"


@pytest.fixture(autouse=True)
def _own_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CFL_PLUGINS", "tests")


@dataclass
class Own:
    """Settings of one of these networks."""

    kind: type[nn.Module]

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        return self.kind()


def work(model: FlatModel, start: Vector, seed: int) -> tuple[bytes, tuple[float, int]]:
    """Do a client's task, and return its model and the test of it."""
    torch.manual_seed(seed)
    x = torch.rand(20, *SHAPE)
    y = torch.arange(20) % 10
    # As long as addresses of what is gone are taken again.
    local = LocalTraining(steps=9)
    train(model.load(start), x, y, local, np.random.default_rng(seed))
    trained = model.to_vector()
    return trained.tobytes(), evaluate(model.load(trained), x, y)


@pytest.mark.parametrize("kind", KEPT, ids=lambda kind: kind.__name__)
def test_every_task_starts_from_the_network_as_built(kind):
    check_network(Own(kind), SHAPE, 10)
    used, fresh = (build_model(Own(kind), SHAPE, 10, seed=0) for _ in range(2))
    start = fresh.to_vector()
    first = work(used, start, seed=1)
    # Another client's work between two tasks leaves no trace.
    assert work(used, start, seed=2) == work(fresh, start, seed=2) != first
    assert work(used, start, seed=1) == first


@pytest.mark.parametrize(
    "kind", [odd_networks.LateFlag, odd_networks.Queue], ids=lambda kind: kind.__name__
)
def test_runs_with_odd_networks_are_the_same_on_any_nodes(kind, run_small):
    options = [*RUN, named(kind)]
    whole = run_small(*options, folder="whole")
    assert whole.failures == []
    # Two nodes divide the clients otherwise, and share the network of this process.
    nodes = InProcessGrid([{}, {}])
    run_small(*options, "rounds=1", folder="parts", grid=nodes)
    parts = run_small(*options, "resume=true", folder="parts", grid=nodes)
    assert parts.numbers == whole.numbers


@pytest.mark.parametrize("kind", REFUSED, ids=lambda kind: kind.__name__)
def test_what_cannot_be_put_back_is_refused_by_name(kind):
    with pytest.raises(ConfigError, match=kind.refused) as found:
        check_network(Own(kind), SHAPE, 10)
    assert "\n" not in str(found.value)


def test_clusters_begin_from_models_that_differ(run_small):
    options = ["strategy=ifca", "clusters=2", *RUN[1:]]
    with pytest.raises(ConfigError, match="clusters would begin from equal models"):
        run_small(*options, named(odd_networks.Seeded), folder="equal")
    # One of each needs no other.
    assert run_small("strategy=fedavg", *RUN[1:], named(odd_networks.Seeded)).rounds


MIXING = (
    odd_networks.BatchStatistics,
    odd_networks.BatchSecond,
    odd_networks.OfLargest,
)
"""Networks whose outputs for a sample depend on others in a test."""


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (odd_networks.PrunedByCount, True),
        (odd_networks.ReplacedBuffer, True),
        (odd_networks.FrozenParameter, True),
        (odd_networks.Net, False),
        (odd_networks.Probabilities, False),
        (odd_networks.DoubleOutputs, False),
        *((kind, False) for kind in MIXING),
        (odd_networks.CumulativeNorm, False),
        (odd_networks.Spectral, False),
        (odd_networks.LateFlag, False),
        (odd_networks.Tied, False),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_what_tests_lack_is_told(kind, told):
    lines = find_warnings(compose_config([*RUN, named(kind)]))
    assert any("uses in tests what training" in line for line in lines) == told
    squashed = kind is odd_networks.Probabilities
    assert any("gives probabilities" in line for line in lines) == squashed
    mixes = kind in MIXING
    assert any("gives a sample other outputs" in line for line in lines) == mixes


STATEFUL = odd_networks.LateAttribute, odd_networks.CumulativeNorm
PROCESSES, RAY = (f"engine={engine} workers=2" for engine in ("processes", "ray"))


def run_on(engine: str, kind: type[nn.Module], folder: Path) -> Any:
    run = cfl.run(*RUN, named(kind), *engine.split(), output_dir=str(folder))
    return run.rounds[["accuracy", "loss", "bytes_up"]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "engine"),
    [
        *((kind, PROCESSES) for kind in STATEFUL),
        *(
            pytest.param(kind, RAY, marks=[*WHOLE, pytest.mark.ray])
            for kind in STATEFUL
        ),
    ],
)
def test_workers_find_the_network_as_built_too(engine, kind, tmp_path):
    alone = run_on("engine=inprocess", kind, tmp_path / "alone")
    others = run_on(engine, kind, tmp_path / "workers")
    assert others.equals(alone)


@pytest.mark.parametrize(
    "kind", [odd_networks.ListedLayers, odd_networks.ListedWithState]
)
def test_attributes_may_refer_to_parts_of_their_network(kind, run_small):
    plain = run_small(*RUN, named(odd_networks.Net), folder="plain")
    assert run_small(*RUN, named(kind), folder="listed").numbers == plain.numbers


@pytest.mark.parametrize(
    ("kind", "travels"),
    [
        (odd_networks.SavedAverage, True),
        (odd_networks.Largest, True),
        (odd_networks.Lowest, True),
        (odd_networks.LateStatistic, True),
        (odd_networks.Mask, False),
    ],
)
def test_averages_that_are_saved_travel_and_constants_do_not(kind, travels, run_small):
    plain = run_small(*RUN, named(odd_networks.Net), folder="plain")
    other = run_small(*RUN, named(kind), folder="other")
    sent = [[row["bytes_up"] for row in run.rounds] for run in (plain, other)]
    assert (sent[1] > sent[0]) == travels
    assert (sent[1] == sent[0]) != travels


def test_a_copy_of_a_network_refers_to_its_own_parts():
    first = build_model(Own(odd_networks.ListedWithState), SHAPE, 10, seed=0)
    copy = first.clone().load(first.to_vector()).module
    assert [layer for layer, _ in copy.layers] == [copy.body]
    copy(torch.ones(2, 64))
    assert [layer for layer, _ in copy.layers] == [copy.body] * 2


@pytest.mark.parametrize(
    ("kind", "refused"),
    [
        (odd_networks.Tied, ""),
        (odd_networks.ReplacedBuffer, ""),
        (odd_networks.Mask, ""),
        (odd_networks.Spectral, r"statistics \(body\.parametrizations"),
        (odd_networks.Centred, r"statistics \(centre\)"),
        (odd_networks.Norm, r"statistics \(norm\.running_mean, norm\.running_var\)"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_privacy_covers_what_travels(kind, refused, run_small):
    private = ["privacy=central", "strategy.weighting=plain", "rounds=1", named(kind)]
    if not refused:
        assert run_small(*RUN, *private).failures == []
        return
    with pytest.raises(ConfigError, match=refused):
        run_small(*RUN, *private)


def test_a_check_leaves_torchs_generator_alone():
    before = torch.random.get_rng_state()
    check_network(Own(odd_networks.ReplacedBuffer), SHAPE, 10)
    build_network(Own(odd_networks.ReplacedBuffer), SHAPE, 10, seed=0)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_what_another_thread_draws_is_not_the_networks(monkeypatch):
    """Ray has threads that draw from Python's generator while a network is checked."""
    plain = requirements.train_twice
    drawn: list[float] = []

    def train(module: nn.Module, x: torch.Tensor) -> None:
        plain(module, x)
        if len(drawn) < 1:
            drawn.append(random.random())

    monkeypatch.setattr(requirements, "train_twice", train)
    check_network(Own(odd_networks.Net), SHAPE, 10)
    assert drawn
