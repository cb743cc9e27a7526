"""Closed forms against autograd, and by hand."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear, normalize
from torch.nn.utils import spectral_norm, weight_norm
from torch.nn.utils.parametrizations import orthogonal
from torch.nn.utils.prune import random_unstructured

from cfl_flower.errors import ConfigError
from cfl_flower.learning.gradients import (
    dense_gradient_writer,
    dense_layers,
    full_gradient,
)
from cfl_flower.models import FlatModel, Mclr, Mlp, Network
from cfl_flower.models.requirements import require_plain_classifier


def deep(*widths: int) -> Network:
    """Return a network of some hidden layers, on inputs of shape (2, 3), 4 classes."""
    parts: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in zip((6, *widths), widths, strict=False):
        parts += [nn.Linear(inputs, outputs), nn.ReLU()]
    return Network(nn.Sequential(*parts), nn.Linear((6, *widths)[-1], 4))


def closed_form(model: FlatModel, x: Tensor, y: Tensor) -> Tensor:
    """Return the gradient that is written, shape (p,)."""
    layers = dense_layers(model.module)
    model.gradient.fill_(torch.nan)  # what was there before is no part of it
    with torch.no_grad():
        dense_gradient_writer(layers)(x, y)
    return model.gradient.clone()


def by_autograd(model: FlatModel, x: Tensor, y: Tensor) -> Tensor:
    """Return the gradient of the mean cross-entropy, shape (p,)."""
    model.gradient.zero_()
    cross_entropy(model.module(x), y).backward()  # type: ignore[no-untyped-call]
    return model.gradient.clone()


@settings(max_examples=60, deadline=None)
@given(
    widths=st.lists(st.integers(1, 9), max_size=3),
    samples=st.integers(1, 12),
    scale=st.sampled_from([0.01, 1.0, 30.0]),
    seed=st.integers(0, 2**16),
)
def test_closed_form_is_autograds_gradient(widths, samples, scale, seed):
    torch.manual_seed(seed)
    model = FlatModel(deep(*widths))
    x, y = scale * torch.randn(samples, 2, 3), torch.randint(4, (samples,))
    expected = by_autograd(model, x, y)
    closeness = 1e-5 * (1 + float(expected.abs().max()))
    assert torch.allclose(closed_form(model, x, y), expected, rtol=0, atol=closeness)


@settings(max_examples=60, deadline=None)
@given(
    widths=st.lists(st.integers(1, 9), max_size=3),
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=4),
    rate=st.sampled_from([0.0, 0.05, 0.5]),
    seed=st.integers(0, 2**16),
)
def test_steps_of_a_rate_are_those_of_torchs_sgd(widths, sizes, rate, seed):
    torch.manual_seed(seed)
    model = FlatModel(deep(*widths).double())
    theirs = model.clone()
    optimizer = torch.optim.SGD(theirs.module.parameters(), lr=rate)
    layers = dense_layers(model.module)
    take_step = dense_gradient_writer(layers, rate)
    model.gradient.fill_(torch.nan)
    for size in sizes:
        x, y = torch.randn(size, 2, 3).double(), torch.randint(4, (size,))
        with torch.no_grad():
            take_step(x, y)
        by_autograd(theirs, x, y)
        optimizer.step()
    torch.testing.assert_close(model.weights, theirs.weights, rtol=1e-10, atol=1e-12)


class Doubled(Network):
    """A network that does more than its layers say."""

    def forward(self, x: Tensor) -> Tensor:
        """Return twice the logits."""
        return 2 * super().forward(x)


class Cosine(nn.Linear):
    """A classifier by angles."""

    def forward(self, x: Tensor) -> Tensor:
        """Return ten times the cosines, and the bias."""
        return 10 * linear(normalize(x), normalize(self.weight), self.bias)


def test_networks_of_another_form_are_left_to_autograd():
    flat, hidden = nn.Flatten(), nn.Linear(6, 3)
    others = [
        Network(nn.Sequential(flat, hidden, nn.Tanh()), nn.Linear(3, 4)),
        Network(nn.Sequential(flat, hidden, nn.ReLU(), nn.Dropout()), nn.Linear(3, 4)),
        Network(nn.Sequential(flat, hidden), nn.Linear(3, 4)),
        Network(nn.Sequential(hidden, nn.ReLU()), nn.Linear(3, 4)),
        Network(nn.Sequential(flat, hidden, nn.ReLU()), nn.Linear(3, 4, bias=False)),
        Network(nn.Identity(), nn.Linear(6, 4)),
        Network(flat, nn.Sequential(nn.Linear(6, 4))),
        Network(flat, Cosine(6, 4)),
        Doubled(nn.Sequential(flat, hidden, nn.ReLU()), nn.Linear(3, 4)),
        nn.Linear(6, 4),
    ]
    assert [dense_layers(each) for each in others] == [None] * len(others)


CHANGES: dict[str, Callable[[Any, Any], object]] = {
    "hook": lambda net, layer: layer.register_forward_hook(lambda m, i, out: out + 1),
    "hook before": lambda net, _: net.register_forward_pre_hook(lambda m, i: None),
    "hook back": lambda net, layer: layer.register_full_backward_hook(
        lambda m, i, o: i
    ),
    "weight's": lambda net, layer: layer.weight.register_hook(lambda grad: grad * 0),
    "weight's later": lambda net, layer: layer.bias.register_post_accumulate_grad_hook(
        lambda weight: None
    ),
    "weight norm": lambda net, layer: weight_norm(layer),
    "spectral norm": lambda net, layer: spectral_norm(layer),
    "pruned": lambda net, layer: random_unstructured(layer, "weight", 0.5),
    "orthogonal": lambda net, layer: orthogonal(layer),
    "own forward": lambda net, _: setattr(net.extractor, "forward", nn.Flatten()),
    "tied": lambda net, layer: setattr(net.extractor, "3", layer),
    "tied weight": lambda net, layer: setattr(net.extractor[3], "weight", layer.weight),
}
"""What makes another function, or another step, of the same classes of layers."""


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_layers_that_do_more_than_their_classes_say_are_left_to_autograd(change, last):
    network = deep(6, 6)
    assert dense_layers(network)
    CHANGES[change](network, network.classifier if last else network.extractor[1])
    assert dense_layers(network) is None
    # Nor is it trained by itself, as if it were no more than a linear layer.
    if last and change not in ("own forward", "hook before"):
        with pytest.raises(ConfigError, match=r"no linear|its last ones|W z \+ b"):
            _ = FlatModel(network).split
            require_plain_classifier(FlatModel(network))


def test_the_papers_small_networks_have_a_closed_form():
    shapes = [
        [each.weight.shape for each in dense_layers(m.build((1, 28, 28), 10)) or []]
        for m in (Mclr(), Mlp(hidden=200))
    ]
    assert shapes == [[(10, 784)], [(200, 784), (10, 200)]]


def test_the_gradient_in_blocks_equals_that_of_all_samples(monkeypatch):
    x, y = torch.rand(12, 2, 3), torch.arange(12) % 4
    model = FlatModel(deep(5))
    expected = by_autograd(model, x, y)
    # The last of 12 samples' three blocks is a smaller one.
    monkeypatch.setattr("cfl_flower.learning.testing.BLOCK", 5)
    torch.testing.assert_close(full_gradient(model, x, y), expected)
    assert not full_gradient(model, x[:0], y[:0]).any()
