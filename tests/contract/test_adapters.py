"""Networks of which a part is trained, in whole runs: LoRA and parameters by name."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from cfl_flower.analysis.saved import load_run
from cfl_flower.config.compose import compose_config
from cfl_flower.learning.cohort_training import why_apart
from cfl_flower.models import (
    Adapted,
    FlatModel,
    Mlp,
    ShuffleNetV2,
    build_network,
    merged,
)
from cfl_flower.models.adapters import FrozenNorm, Lora, add_adapters
from simulations.export import export, load_module, network_of
from tests.simulations.test_export import load_served

LORA = ["model=mlp", "model.lora.rank=2"]
SIZE = 2 * (64 + 64) + 65 * 10
"""Of A and B of a layer from 64 pixels to 64, and of the classifier."""


@pytest.mark.contract
@pytest.mark.parametrize(
    ("overrides", "size"),
    [
        (["strategy=fedavg"], SIZE),
        (["strategy=fedavg", "model.trainable=[classifier.*]"], 650),
        (["strategy=ifca", "clusters=2"], SIZE),
        (["strategy=stocfl"], SIZE),
        (["strategy=fielding", "strategy/representation=gradient"], SIZE),
        (["strategy=fedrep"], SIZE),
        (["strategy=ditto"], SIZE),
        (["strategy=fedavg", "privacy=central"], SIZE),
        (["strategy=fedavg", "privacy.secure_sums=true"], SIZE),
    ],
    ids=str,
)
def test_a_clusters_model_is_its_adapter(overrides, size, run_small):
    plain = ["strategy.weighting=plain"] if "privacy=central" in overrides else []
    run = run_small(*LORA, *overrides, *plain)
    assert not run.failures
    assert {len(model) for model in run.state.models} == {size}
    assert run.rounds[-1]["accuracy"] > 0


def test_an_export_has_the_adapters_in_the_weights(run_small, tmp_path):
    run = run_small("strategy=fedavg", *LORA, "rounds=2")
    saved = load_run(run.folder)
    trained = network_of(saved).load(run.state.models[0]).module.eval()
    served = load_module(saved)
    x = torch.randn(5, 1, 8, 8)
    expected = trained(x)
    torch.testing.assert_close(served(x), expected)
    assert {*served.state_dict()} == {*Mlp(64).build((1, 8, 8), 10).state_dict()}
    export(run.folder, tmp_path / "out")
    torch.testing.assert_close(load_served(tmp_path / "out")(x), expected)
    # A run begins with the features of another one.
    weights = tmp_path / "out" / "cluster-0" / "model.safetensors"
    model: Any = compose_config([*LORA, f"model.weights={weights}"]).model
    network: Any = build_network(model, (1, 8, 8), 10, seed=5)
    inner: Any = served
    torch.testing.assert_close(network.extractor(x), inner.extractor(x))
    assert not torch.allclose(network(x), expected)


def test_layers_of_one_weight_have_an_adapter_each():
    network = nn.Sequential(*(nn.Linear(6, 6) for _ in range(3)))
    network[1].weight = network[0].weight
    add_adapters(network, Lora(rank=2))
    for parameter in network.parameters():
        nn.init.normal_(parameter.data)
    x = torch.randn(4, 6)
    torch.testing.assert_close(merged(network)(x), network(x))


@pytest.mark.parametrize("weights", ["backbone.safetensors", "backbone.pt"])
def test_a_backbone_keeps_its_weights_and_statistics(weights, tmp_path):
    plain: Any = ShuffleNetV2()
    backbone = build_network(plain, (1, 9, 9), 3, seed=1)
    inner: Any = backbone.extractor
    for name, tensor in inner.named_buffers():
        if name.endswith("running_var"):
            tensor.mul_(1.5)
    path = tmp_path / weights
    # As torchvision's files: without the prefix of the extractor.
    write: Any = save_file if path.suffix == ".safetensors" else torch.save
    write(inner.state_dict(), path)
    adapted = Adapted(str(path), [], Lora(2, ["*branch2.?"]), plain)
    network = build_network(adapted, (1, 9, 9), 3, seed=2)
    x = torch.randn(4, 1, 9, 9)
    kept: Tensor = network.extractor(x)  # type: ignore[operator]
    torch.testing.assert_close(kept, inner.eval()(x))
    model = FlatModel(network)
    # No running statistics are left to travel, which privacy would refuse.
    assert len(model.vector) == len(model.weights) < 30_000
    assert any(isinstance(each, FrozenNorm) for each in network.modules())
    reloaded = plain.build((1, 9, 9), 3)
    reloaded.load_state_dict(merged(network).state_dict())
    torch.testing.assert_close(reloaded.eval()(x), network.eval()(x))


class Attention(nn.Module):
    """Attention over the rows of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, shape (n, 10)."""
        rows = x.squeeze(1)
        logits: Tensor = self.head(self.inner(rows, rows, rows)[0].mean(1))
        return logits


def test_queries_keys_and_values_have_an_adapter():
    lora = Lora(2, ["inner", "inner.out_proj"])
    attentive: Any = SimpleNamespace(build=lambda *_: Attention())
    adapted = Adapted(None, ["*lora*", "head.*"], lora, attentive)
    model = FlatModel(adapted.build((), 0))
    assert len(model.vector) == 2 * (24 + 8) + 2 * (8 + 8) + 90
    x = torch.randn(3, 1, 8, 8)
    before = model.module(x)
    model.module(x).sum().backward()
    assert model.gradient.count_nonzero() > 90
    model.vector.add_(0.1)
    after = model.module(x)
    assert not torch.allclose(after, before)
    torch.testing.assert_close(merged(model.module)(x), after)


def test_adapters_of_many_clients_train_together_on_a_gpu():
    model = FlatModel(Adapted(lora=Lora(2), network=Mlp(64)).build((1, 8, 8), 10))
    assert not why_apart(model, (1, 8, 8))


def test_a_device_reads_no_weights_outside_of_its_folder():
    model = Adapted(weights="/etc/shadow", network=Mlp())
    assert model.for_device("/data/site-a").weights == "/data/site-a/shadow"
