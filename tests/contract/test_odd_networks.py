"""State of a network's own never passes from client to client, whatever its kind."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import cfl_flower as cfl
from cfl_flower.config.compose import compose_config
from cfl_flower.config.warnings import find_warnings
from cfl_flower.errors import ConfigError
from cfl_flower.models import build_model, build_network, check_network, network
from simulations.engines.inprocess import InProcessGrid
from tests.conftest import Runner
from tests.contract import odd_networks

RUN = ["strategy=fedavg", "clients=8", "participants=4", "rounds=2", "drift=none"]

KEPT = [
    odd_networks.ReplacedBuffer,
    odd_networks.Attribute,
    odd_networks.InnerAttribute,
    odd_networks.LateAttribute,
    odd_networks.History,
    odd_networks.TensorAttribute,
    odd_networks.FrozenParameter,
    odd_networks.OwnGenerator,
    odd_networks.Centred,
    odd_networks.CentredUnsaved,
    odd_networks.CentredReplaced,
    odd_networks.CumulativeNorm,
    odd_networks.Norm,
    odd_networks.LazyNorm,
    odd_networks.Mask,
    odd_networks.PreciseConstant,
    odd_networks.HalfParameter,
    odd_networks.Tied,
    odd_networks.Spectral,
    odd_networks.Cache,
    odd_networks.EmptyParameter,
    odd_networks.Dropout,
    odd_networks.KeptInEvaluation,
    odd_networks.CountsSwitches,
    odd_networks.OldWeightNorm,
    odd_networks.Queue,
    odd_networks.SavedAverage,
    odd_networks.LateAverage,
    odd_networks.Anchor,
    odd_networks.ListedLayers,
    odd_networks.ListedWithState,
    odd_networks.LateFlag,
    odd_networks.LateFreeze,
    odd_networks.LateName,
    odd_networks.LateLoss,
    odd_networks.Table,
]

REFUSED = {
    odd_networks.Global: "Global trained differently from the same model and seed",
    odd_networks.RarelyRandom: "draws from Python's or NumPy's own generator",
    odd_networks.NumpysRandom: "draws from Python's or NumPy's own generator",
    odd_networks.Hook: "Hook trained differently from the same model and seed",
    odd_networks.DropoutInTests: "different outputs for the same inputs in evaluation",
    odd_networks.CountsTests: "different outputs for the same inputs in evaluation",
    odd_networks.PreciseParameter: r"scale holds torch\.float64 numbers",
    odd_networks.PreciseNet: r"body\.weight holds torch\.float64 numbers",
    odd_networks.ComplexParameter: r"turn holds torch\.complex64 numbers",
    odd_networks.RunningMinimum: "least holds numbers that are not finite",
    odd_networks.ReplacedParameter: r"in the place of body\.weight",
    odd_networks.AuxiliaryOutput: "returns a tuple for 2 inputs in training",
    odd_networks.AuxiliaryMapping: "returns a dict for 2 inputs",
    odd_networks.OneSampleAtATime: r"returns \(1, 10\) for 2 inputs",
    odd_networks.SharedHead: "share parameters",
    odd_networks.PlainAverage: "PlainAverage has weights in ema that are neither",
    odd_networks.InnerAverage: r"has weights in body\.shadow that are neither",
    odd_networks.FrozenTeacher: r"has weights in teacher\.weight that are",
    odd_networks.UnsavedAverage: "has weights in ema that are neither trained",
    odd_networks.ForgottenLayers: "has weights in layers that are neither",
    odd_networks.LateGlobal: r"LateGlobal changes tests\S+\.SEEN, outside of the net",
    odd_networks.ClassCounter: r"changes ClassCounter\.steps, outside",
    odd_networks.CalledCounter: r"changes tests\.contract\.odd_networks\.CALLS, out",
    odd_networks.Closure: r"changes \S+\.steps, outside",
    odd_networks.PrivateCounter: "changes PrivateCounter._PrivateCounter__steps, out",
    odd_networks.CounterOfAModule: r"changes tests\.contract\.kept\.steps, outside",
    odd_networks.CounterOfAProperty: r"changes tests\S+odd_networks\.CALLS, outside",
    odd_networks.SameNames: r"changes tests\.contract\.kept\.CALLS, outside",
    odd_networks.FirstMask: "FirstMask of a process draws something that later ones",
    odd_networks.FirstMaskOfMethod: "FirstMaskOfMethod trained differently from the",
    odd_networks.UnseededWeights: "UnseededWeights of the same seed begin with other",
}


def named(kind: type[nn.Module]) -> str:
    return f"model._target_={kind.__module__}.{kind.__qualname__}"


@pytest.fixture(autouse=True)
def _own_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CFL_PLUGINS", "tests")


@pytest.mark.parametrize("kind", KEPT, ids=lambda kind: kind.__name__)
def test_every_task_starts_from_the_network_as_built(
    kind: type[nn.Module], run_small: Runner
) -> None:
    options = [*RUN, named(kind)]
    whole = run_small(*options, folder="whole")
    assert whole.failures == []
    # Two nodes divide the clients otherwise, and share the network of this process.
    nodes = InProcessGrid([{}, {}])
    run_small(*options, "rounds=1", folder="parts", grid=nodes)
    parts = run_small(*options, "resume=true", folder="parts", grid=nodes)
    assert parts.numbers == whole.numbers


@pytest.mark.parametrize("kind", REFUSED, ids=lambda kind: kind.__name__)
def test_what_cannot_be_put_back_is_refused_by_name(
    kind: type[nn.Module], run_small: Runner
) -> None:
    with pytest.raises(ConfigError, match=REFUSED[kind]) as found:
        run_small(*RUN, named(kind))
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (odd_networks.PrunedByCount, True),
        (odd_networks.MeanInAttribute, True),
        (odd_networks.ReplacedBuffer, True),
        (odd_networks.FrozenParameter, True),
        (odd_networks.Net, False),
        (odd_networks.Norm, False),
        (odd_networks.CumulativeNorm, False),
        (odd_networks.Spectral, False),
        (odd_networks.Dropout, False),
        (odd_networks.LateFlag, False),
        (odd_networks.Tied, False),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_what_tests_lack_is_told(kind: type[nn.Module], told: bool) -> None:
    lines = find_warnings(compose_config([*RUN, named(kind)]))
    assert any("uses in tests what training" in line for line in lines) == told


def run_on(engine: str, kind: type[nn.Module], folder: Path) -> Any:
    run = cfl.run(*RUN, named(kind), *engine.split(), output_dir=str(folder))
    return run.rounds[["accuracy", "loss", "bytes_up"]]


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [odd_networks.Attribute, odd_networks.CumulativeNorm, odd_networks.CentredUnsaved],
    ids=lambda kind: kind.__name__,
)
@pytest.mark.parametrize(
    "engine",
    [
        "engine=processes workers=1",
        "engine=processes workers=2",
        pytest.param("engine=ray workers=2", marks=pytest.mark.ray),
    ],
)
def test_workers_find_the_network_as_built_too(
    engine: str, kind: type[nn.Module], tmp_path: Path
) -> None:
    alone = run_on("engine=inprocess", kind, tmp_path / "alone")
    others = run_on(engine, kind, tmp_path / "workers")
    assert others.equals(alone)


@pytest.mark.parametrize(
    "kind", [odd_networks.ListedLayers, odd_networks.ListedWithState]
)
def test_attributes_may_refer_to_parts_of_their_network(
    kind: type[nn.Module], run_small: Runner
) -> None:
    plain = run_small(*RUN, named(odd_networks.Net), folder="plain")
    assert run_small(*RUN, named(kind), folder="listed").numbers == plain.numbers


def test_an_average_of_weights_that_is_saved_travels(run_small: Runner) -> None:
    plain = run_small(*RUN, named(odd_networks.Net), folder="plain")
    averaged = run_small(*RUN, named(odd_networks.SavedAverage), folder="averaged")
    assert averaged.rounds[0]["bytes_up"] > plain.rounds[0]["bytes_up"]


def test_a_copy_of_a_network_refers_to_its_own_parts() -> None:
    first = build_model(Own(odd_networks.ListedWithState), (1, 8, 8), 10, seed=0)
    copy = first.clone().load(first.to_vector()).module
    assert [layer for layer, _ in copy.layers] == [copy.body]
    copy(torch.ones(2, 64))
    assert [layer for layer, _ in copy.layers] == [copy.body] * 2


def test_constants_do_not_travel(run_small: Runner) -> None:
    plain = run_small(*RUN, named(odd_networks.Net), folder="plain")
    masked = run_small(*RUN, named(odd_networks.Mask), folder="masked")
    assert [row["bytes_up"] for row in masked.rounds] == [
        row["bytes_up"] for row in plain.rounds
    ]


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
def test_privacy_covers_what_travels(
    kind: type[nn.Module], refused: str, run_small: Runner
) -> None:
    private = ["privacy=central", "strategy.weighting=plain", "rounds=1", named(kind)]
    if not refused:
        assert run_small(*RUN, *private).failures == []
        return
    with pytest.raises(ConfigError, match=refused):
        run_small(*RUN, *private)


@dataclass
class Own:
    """Settings of one of these networks."""

    kind: type[nn.Module]

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        return self.kind()


def test_a_check_leaves_torchs_generator_alone() -> None:
    before = torch.random.get_rng_state()
    check_network(Own(odd_networks.ReplacedBuffer), (1, 8, 8), 10)
    build_network(Own(odd_networks.ReplacedBuffer), (1, 8, 8), 10, seed=0)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_what_another_thread_draws_is_not_the_networks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ray has threads that draw from Python's generator while a network is checked."""
    plain = network.train_twice
    drawn: list[float] = []

    def train(module: nn.Module, x: torch.Tensor) -> None:
        plain(module, x)
        if len(drawn) < 1:
            drawn.append(random.random())

    monkeypatch.setattr(network, "train_twice", train)
    check_network(Own(odd_networks.Net), (1, 8, 8), 10)
    assert drawn
