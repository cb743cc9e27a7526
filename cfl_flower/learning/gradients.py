"""The gradient of a loss on a batch, and over all samples of a client."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from cfl_flower.learning.dense_gradients import dense_gradient_writer, dense_layers
from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.learning.testing import BLOCK, switch_mode
from cfl_flower.models import FlatModel

TRAINING_PASSES = 3
"""Cost of a training step per sample, in forward passes."""

Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]
"""The loss of a network on a batch."""


class SampleLoss(ABC):
    """A loss that a cohort can map over its clients."""

    @abstractmethod
    def __call__(self, module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean over a batch, as any `Loss`."""

    @property
    @abstractmethod
    def alike(self) -> Hashable:
        """What is equal for clients whose losses differ in their ``tensors`` alone."""

    @property
    @abstractmethod
    def tensors(self) -> tuple[Tensor, ...]:
        """What is this client's own."""

    @abstractmethod
    def of_samples(
        self, module: nn.Module, x: Tensor, y: Tensor, *own: Tensor
    ) -> Tensor:
        """Return each sample's loss, (n,), with a client's ``tensors``."""


def gradient_writer(
    model: FlatModel, loss: Loss | None = None, settings: LocalTraining | None = None
) -> Callable[[Tensor, Tensor], None]:
    """Return the function of a batch that writes its gradient to ``model.gradient``.

    Of the mean cross-entropy, with the label smoothing of ``settings``, or of another
    loss; in their precision. Dense networks have a closed form in float32, which takes
    a third of autograd's time.
    """
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
    blocks = [torch.split(data, BLOCK) for data in (x, y)]
    for x_block, y_block in zip(*blocks, strict=True):
        if len(y_block):
            write_gradient(x_block, y_block)
            total.add_(model.gradient, alpha=len(y_block) / len(y))
    return total
