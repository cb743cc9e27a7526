"""Predictions and tests with torch, independent of Flower."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from cfl_flower.models import FlatModel

BLOCK = 128
"""Samples in a forward pass outside of SGD; fixed, for equal sums on all workers.

With more, a convolution's activations outgrow the cache: 512 took twice the time.
"""

Note = Callable[[Tensor, Tensor], None]
"""Takes the logits of some tested samples, (n, L), and their labels, (n,)."""


def switch_mode(model: FlatModel, training: bool) -> None:
    """Switch between training and evaluation mode."""
    # Setting the mode of all modules costs as much as a small model's forward pass.
    if model.module.training is not training:
        model.module.train(training)


@torch.no_grad()
def predictions(model: FlatModel, x: Tensor) -> Tensor:
    """Return the most probable label of each sample, shape (n,)."""
    return logits(model, x).argmax(1)


@torch.no_grad()
def sample_losses(model: FlatModel, x: Tensor, y: Tensor) -> Tensor:
    """Return the cross-entropy of each sample in evaluation mode, shape (n,)."""
    return cross_entropy(logits(model, x), y, reduction="none")


@torch.no_grad()
def logits(model: FlatModel, x: Tensor) -> Tensor:
    """Return the outputs for each sample in evaluation mode, shape (n, L)."""
    switch_mode(model, training=False)
    model.passes += len(x)
    return torch.cat([model.module(block) for block in torch.split(x, BLOCK)])


def evaluate(
    model: FlatModel,
    x: Tensor,
    y: Tensor,
    spread: Callable[..., Iterable[Any]] = map,
    note: Note | None = None,
) -> tuple[float, int]:
    """Return the mean cross-entropy and the number of correct predictions.

    ``x`` and ``y`` have shapes (n, ...) and (n,). ``spread`` maps over the blocks; a
    thread pool's ``map`` gives the same bits. ``note`` is given the logits and labels
    of each block. Raises `ValueError` if there are no samples.
    """
    if y.shape[0] == 0:
        raise ValueError("the client has no test samples in this round")
    switch_mode(model, training=False)
    model.passes += len(y)
    parts = [torch.split(data, BLOCK) for data in (x, y)]
    tested = spread(partial(_test_block, model.module, note), *parts)
    loss = 0.0
    correct = 0
    for y_block, (block_loss, block_correct) in zip(parts[1], tested, strict=True):
        loss += block_loss * (len(y_block) / len(y))
        correct += block_correct
    return loss, correct


@torch.no_grad()
def _test_block(
    module: nn.Module, note: Note | None, x: Tensor, y: Tensor
) -> tuple[float, int]:
    logits = module(x)
    if note is not None:
        note(logits, y)
    return float(cross_entropy(logits, y)), int((logits.argmax(1) == y).sum())
