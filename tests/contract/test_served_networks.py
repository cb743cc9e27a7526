"""Networks of a user's own: what is served computes what was trained."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from cfl_flower.analysis.saved import load_run
from cfl_flower.errors import ConfigError
from cfl_flower.learning.testing import evaluate
from cfl_flower.models import FlatModel, Network
from cfl_flower.models.adapters import load_weights
from simulations.export import export, load_module
from strategies.families.public_sets import Samples, Validation
from tests.simulations.test_export import load_served

OWN = """
import torch
from torch import nn
from torch.nn.utils import parametrizations

from cfl_flower.models import Network
from cfl_flower.settings import settings


class Features(nn.Module):
    def __init__(self, kept=None):
        super().__init__()
        drawn = torch.randn(64, 32)
        if kept is None:
            self.drawn = drawn
        else:
            self.register_buffer("drawn", drawn, persistent=kept)

    def forward(self, x):
        return torch.relu(x.flatten(1) @ self.drawn)


class Order(nn.Module):
    def __init__(self):
        super().__init__()
        self.order = torch.randperm(64).tolist()

    def forward(self, x):
        return x.flatten(1)[:, self.order]


class Extra(Network):
    def get_extra_state(self):
        return {"made": 1}

    def set_extra_state(self, state):
        pass


def dense(norm=lambda layer: layer):
    return nn.Sequential(nn.Flatten(), norm(nn.Linear(64, 32)), nn.ReLU())


def frozen():
    layers = dense()
    turned = layers[1].weight.detach().t().contiguous().t()
    layers[1].weight = nn.Parameter(turned, requires_grad=False)
    return layers


EXTRACTORS = {
    "saved buffer": lambda: Features(True),
    "buffer": lambda: Features(False),
    "attribute": lambda: Features(),
    "order": lambda: nn.Sequential(Order(), nn.Linear(64, 32), nn.ReLU()),
    "weight norm": lambda: dense(parametrizations.weight_norm),
    "spectral norm": lambda: dense(parametrizations.spectral_norm),
    "not contiguous": frozen,
    "extra state": dense,
}


@settings("model")
class Own:
    kind: str = ""

    def build(self, shape, classes):
        network = Extra if self.kind == "extra state" else Network
        return network(EXTRACTORS[self.kind](), nn.Linear(32, classes))
"""

KINDS = (
    *("saved buffer", "buffer", "attribute", "order", "weight norm", "spectral norm"),
    "not contiguous",
)


@pytest.fixture(autouse=True)
def _own_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "served_networks.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("CFL_PLUGINS", "served_networks")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_served_is_the_model_of_the_run(kind, run_small, tmp_path):
    own = ["model._target_=served_networks.Own", f"+model.kind='{kind}'"]
    run = run_small("strategy=fedavg", "seed=3", "rounds=1", "drift=none", *own)
    export(run.folder, tmp_path / "served")
    x = torch.rand(20, 1, 8, 8)
    with torch.no_grad():
        found = load_served(tmp_path / "served")(x)
        torch.testing.assert_close(found, load_module(load_run(run.folder))(x))


def test_state_that_is_no_tensor_is_refused_in_a_line(run_small, tmp_path):
    own = ["model._target_=served_networks.Own", "+model.kind='extra state'"]
    run = run_small("strategy=fedavg", "rounds=1", "drift=none", *own)
    with pytest.raises(ConfigError, match=r"model=Extra with .*_extra_state"):
        export(run.folder, tmp_path / "served")


class Copies(Network):
    """It returns copies of its weights to whoever saves them."""

    def state_dict(self, *args: Any, **options: Any) -> Any:
        found = super().state_dict(*args, **options)
        return {name: tensor.clone() for name, tensor in found.items()}


class Extra(Network):
    """It saves something that is no tensor."""

    def get_extra_state(self) -> dict[str, int]:
        return {"made": 1}

    def set_extra_state(self, state: dict[str, int]) -> None:
        pass


@pytest.mark.parametrize("kind", [Network, Copies, Extra])
def test_saved_weights_are_loaded_whatever_a_network_says_of_them(kind, tmp_path):
    layers = [nn.Sequential(nn.Flatten(), nn.Linear(4, 3)) for _ in range(2)]
    one, other = (kind(each, nn.Linear(3, 2)) for each in layers)
    saved = {k: v for k, v in one.state_dict().items() if torch.is_tensor(v)}
    save_file(saved, tmp_path / "weights.safetensors")
    load_weights(other, tmp_path / "weights.safetensors")
    assert torch.equal(other.extractor[1].weight, one.extractor[1].weight)
    assert not torch.equal(other.classifier.weight, one.classifier.weight)


class Skipping(nn.Module):
    """It takes something past a layer in an attribute, as hooks do, too."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 64)
        self.second = nn.Linear(64, 64)
        self.last = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        self.skip = torch.relu(self.first(x.flatten(1)))
        return self.last(torch.relu(self.second(self.skip)) + self.skip)


def hooked() -> nn.Module:
    """Return layers of torch's, of which a hook keeps an output for a later one."""
    layers = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)
    )
    kept: list[Tensor] = []
    layers[1].register_forward_hook(lambda _, i, out: kept.append(out))
    layers[2].register_forward_hook(lambda _, i, out: out + kept.pop())
    return layers


@pytest.mark.parametrize("build", [Skipping, hooked])
def test_the_server_tests_no_network_of_ones_own_twice_at_a_time(
    build: Callable[[], nn.Module],
):
    model = FlatModel(build())
    x, y = torch.rand(2048, 1, 8, 8), torch.arange(2048) % 10
    vector = model.to_vector()
    expected = evaluate(model, x, y)[0]
    validation = Validation(model, [Samples(x, y)], threads=4)
    assert {float(validation.losses(vector)[0]) for _ in range(20)} == {expected}
