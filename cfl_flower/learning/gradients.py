"""The gradient of a loss, on a batch and over all samples of a client.

Autograd records and dispatches a graph in every step; for networks whose layers take
microseconds, that is most of a step's time. Dense ReLU networks have a closed form.
With activations h_0 = x and h_l = relu(h_{l-1} W_l^T + b_l), and logits z of the last
layer without a ReLU, the gradient of the mean cross-entropy over n samples is, from the
last layer back,

    delta_L = (softmax(z) - onehot(y)) / n,  delta_{l-1} = (delta_l W_l) 1[h_{l-1} > 0]
    dW_l = delta_l^T h_{l-1},                db_l = sum over the samples of delta_l
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.learning.testing import block_size, switch_mode
from cfl_flower.models import FlatModel, Network, SoftmaxRegression
from cfl_flower.models.outside import has_hooks


def dense_layers(module: Any) -> list[nn.Linear] | None:
    """Return the linear layers of a network that is nothing but these and ReLUs.

    That is, flattened inputs, layers with biases, and a ReLU between two of them. None
    for any other network, and for one with frozen or tied parameters, or with hooks,
    which are how `torch.nn.utils.weight_norm` and pruning work, too.
    """
    if type(module) not in (Network, SoftmaxRegression):
        return None
    extractor = module.extractor
    parts = [*extractor] if type(extractor) is nn.Sequential else [extractor]
    layers: list[Any] = [*parts[1::2], module.classifier]
    kinds = [nn.Flatten, *[nn.Linear, nn.ReLU] * (len(layers) - 1), nn.Linear]
    own = [each for each in module.parameters() if each.requires_grad]
    found = list(map(type, [*parts, module.classifier]))
    plain = found == kinds and len(own) == 2 * len(layers)
    return layers if plain and not has_hooks(module) else None


def dense_gradient_writer(
    layers: list[nn.Linear], rate: float | None = None
) -> Callable[[Tensor, Tensor], None]:
    """Return the function of a batch that writes a network's gradient.

    Inputs have shape (n, ...), labels (n,); the gradient of the mean cross-entropy goes
    into the ``grad`` of the layers' parameters, which has to be there. With a ``rate``
    it is a step of SGD instead: the gradient times ``rate`` is subtracted from the
    parameters, and kept nowhere.
    """
    hidden = [(layer.bias, layer.weight.t()) for layer in layers[:-1]]
    last_bias = layers[-1].bias
    last_weight = layers[-1].weight.t()
    back: list[tuple[Tensor, Any, Any]]
    if rate is None:
        back = [(each.weight, each.weight.grad, each.bias.grad) for each in layers]
        kept = 0.0
        factor = 1.0
    else:
        # Memory is what a wide layer's step takes: this writes and reads it once.
        back = [(each.weight, each.weight, each.bias) for each in layers]
        kept = 1.0
        factor = -rate
    back.reverse()
    constants: dict[int, tuple[Tensor, Tensor]] = {}

    def write(x: Tensor, y: Tensor) -> None:
        size = len(y)
        if size not in constants:
            constants[size] = (x.new_ones(size), x.new_full((size, 1), -1.0))
        ones, minus = constants[size]
        below = x.flatten(1)
        activations = [below]
        for bias, weight in hidden:
            below = torch.addmm(bias, below, weight).relu_()
            activations.append(below)
        # The gradient of the sum of losses; that of their mean is the products' scale.
        delta = torch.addmm(last_bias, below, last_weight).softmax(1)
        delta.scatter_add_(1, y.unsqueeze(1), minus)
        scale = factor / size
        for layer, of_weight, of_bias in back:
            below = activations.pop()
            above = delta.t()
            if activations:
                # The gradient is 0 where a ReLU gave 0.
                delta = torch.mm(delta, layer).mul_(below.sign())
            of_weight.addmm_(above, below, beta=kept, alpha=scale)
            of_bias.addmv_(above, ones, beta=kept, alpha=scale)

    return write


TRAINING_PASSES = 3
"""Cost of a training step per sample, in forward passes."""

Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]
"""The loss of a network on a batch."""


def gradient_writer(
    model: FlatModel, loss: Loss | None = None, settings: LocalTraining | None = None
) -> Callable[[Tensor, Tensor], None]:
    """Return the function of a batch that writes its gradient to ``model.gradient``.

    Of the mean cross-entropy, with the label smoothing of ``settings``, or of another
    loss; in their precision. Dense networks have a closed form in float32, which takes
    a third of autograd's time.
    """
    model.bind_gradients()
    layers = closed_form(model, loss, settings)
    if layers is not None:
        return dense_gradient_writer(layers)
    smoothing = 0.0 if settings is None else settings.label_smoothing
    loss = loss or partial(mean_cross_entropy, smoothing=smoothing)
    if settings is not None and settings.precision == "bf16":
        loss = partial(_in_bf16, loss)
    return partial(_write_by_autograd, model, loss)


def closed_form(
    model: FlatModel, loss: Loss | None, settings: LocalTraining | None
) -> list[nn.Linear] | None:
    """Return the layers of a network whose gradient has a closed form, else None."""
    plain = loss is None and (settings is None or settings.plain_loss)
    return dense_layers(model.module) if plain else None


def mean_cross_entropy(
    module: nn.Module, x: Tensor, y: Tensor, smoothing: float = 0.0
) -> Tensor:
    """Return the loss of plain training."""
    return cross_entropy(module(x), y, label_smoothing=smoothing)


def _in_bf16(loss: Loss, module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    with torch.autocast(x.device.type, torch.bfloat16):
        return loss(module, x, y)


def _write_by_autograd(model: FlatModel, loss: Loss, x: Tensor, y: Tensor) -> None:
    model.gradient.zero_()
    with torch.enable_grad():
        value = loss(model.module, x, y)
    model.bind_gradients()
    value.backward()  # type: ignore[no-untyped-call]


@torch.no_grad()
def full_gradient(model: FlatModel, x: Tensor, y: Tensor) -> Tensor:
    """Return the gradient of the mean cross-entropy over all samples, shape (p,).

    In evaluation mode, without dropout. Zero without samples. ``x`` and ``y`` have
    shapes (n, ...) and (n,).
    """
    switch_mode(model, training=False)
    write_gradient = gradient_writer(model)
    model.passes += TRAINING_PASSES * len(y)
    total = torch.zeros_like(model.gradient)
    blocks = [torch.split(data, block_size(x)) for data in (x, y)]
    for x_block, y_block in zip(*blocks, strict=True):
        if len(y_block):
            write_gradient(x_block, y_block)
            total.add_(model.gradient, alpha=len(y_block) / len(y))
    return total
