"""Settings of classes and functions that were not written as settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import nn

from cfl_flower.building import build, declared, with_defaults
from cfl_flower.errors import ConfigError
from cfl_flower.settings import settings


class Layers(nn.Module):
    """A network as Hydra's users name it."""

    def __init__(
        self,
        hidden: int,
        classes: int,
        *sizes: int,
        shape: tuple[int, ...] = (1,),
        rates: Any = (0.1, 0.2),
        activation: Any = nn.ReLU,
        **more: int,
    ) -> None:
        super().__init__()
        assert not sizes and not more
        self.rates = rates
        first = nn.Linear(shape[1] * shape[2], hidden)
        last = nn.Linear(hidden, classes)
        self.layers = nn.Sequential(nn.Flatten(), first, activation(), last)

    def forward(self, x: Any) -> Any:
        return self.layers(x)


def make_layers(hidden: int = 5, *, num_classes: int) -> nn.Module:
    return Layers(hidden, num_classes, shape=(1, 8, 8))


def make_number(size: int = 3) -> int:
    return size


@dataclass
class Plain:
    hidden: int = 7
    rates: list[float] = field(default_factory=lambda: [0.1])

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        return Layers(self.hidden, classes, shape=shape)


@dataclass(frozen=True)
class Frozen:
    hidden: int

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        return Layers(self.hidden, classes, shape=shape)


@settings("model")
class Unreadable:
    hidden: Nowhere = 3  # type: ignore[name-defined]  # noqa: F821


@dataclass
class UnreadableToo:
    hidden: Nowhere = 3  # type: ignore[name-defined]  # noqa: F821


@pytest.fixture(autouse=True)
def _own_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CFL_PLUGINS", "tests")


def node(target: object, **values: Any) -> dict[str, Any]:
    return {"_target_": f"{__name__}.{target.__name__}", **values}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("target", "values", "hidden"),
    [
        (Layers, {"hidden": 4}, 4),
        (Layers, {"hidden": 4, "rates": [1]}, 4),
        (make_layers, {}, 5),
        (make_layers, {"hidden": 6}, 6),
        (Plain, {}, 7),
        (Plain, {"hidden": "8"}, 8),
        (Frozen, {"hidden": 9}, 9),
    ],
)
def test_a_network_is_built_of_what_is_set(target, values, hidden):
    built = build(node(target, **values), "model")
    network = built.build((1, 8, 8), 10)
    assert network.layers[1].weight.shape == (hidden, 64)
    assert network.layers[3].weight.shape == (10, hidden)
    # The same class each time, so that two runs' settings can be compared.
    assert type(built) is type(build(node(target, **values), "model"))


@pytest.mark.parametrize(
    ("target", "values", "message"),
    [
        (Layers, {}, "model.hidden is missing"),
        (Layers, {"hidden": 4, "hiden": 4}, "model.hiden is .*; did you mean hidden"),
        (Layers, {"hidden": 4, "classes": 3}, "model.classes is not a setting"),
        (Layers, {"hidden": 4, "activation": 3}, "activation is not a setting"),
        (Layers, {"hidden": 4, "sizes": 3}, "sizes is not a setting"),
        (Layers, {"hidden": 4, "more": 3}, "more is not a setting"),
        (Plain, {"hidden": "x"}, "model.hidden=x is not allowed; use a whole number"),
        (Plain, {"rates": 3}, "model.rates=3 is not allowed; use a list of numbers"),
        (Frozen, {}, "model.hidden is missing"),
        (Unreadable, {}, "annotations of Unreadable cannot be read"),
        (UnreadableToo, {}, "annotations of UnreadableToo cannot be read"),
    ],
)
def test_a_wrong_value_is_one_line(target, values, message):
    with pytest.raises(ConfigError, match=message) as found:
        build(node(target, **values), "model")
    assert "\n" not in str(found.value)


def test_a_function_that_makes_no_network_is_refused() -> None:
    built = build(node(make_number), "model")
    with pytest.raises(ConfigError, match=r"make_number returns a int; it must return"):
        built.build((1, 8, 8), 10)


def test_defaults_that_a_file_can_hold_are_shown() -> None:
    shown = with_defaults(node(Layers))
    assert shown["hidden"] == "???"
    assert shown["rates"] == [0.1, 0.2]
    assert "activation" not in shown and "shape" not in shown
    plain = with_defaults(node(Plain))
    assert declared(plain, build(plain, "model"))["hidden"] == 7


@pytest.mark.parametrize(
    "model", ["Layers model.hidden=4", "make_layers", "Plain model.hidden=3"]
)
def test_a_run_trains_it_and_its_configuration_repeats_it(model, run_small):
    options = ["strategy=fedavg", "rounds=2", "drift=none"]
    options += f"model._target_={__name__}.{model}".split()
    run = run_small(*options)
    assert run.failures == []
    assert run.config.model.build((1, 8, 8), 10)(torch.ones(1, 64)).shape == (1, 10)
    assert run_small(*options, folder="again").numbers == run.numbers


def test_a_check_that_fails_by_itself_keeps_its_words() -> None:
    @settings("strategy")
    class Broken:
        rate: float = 0.1

        def __post_init__(self) -> None:
            raise ValueError("a rate without a unit")

    with pytest.raises(ConfigError, match=r"^strategy: .*a rate without a unit"):
        Broken()
