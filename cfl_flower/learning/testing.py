"""Predictions and tests with torch, in blocks of samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.special import entr

from cfl_flower.models import FlatModel
from cfl_flower.types import FloatArray

BLOCK = 128
"""Samples in a forward pass outside of SGD; fixed, for equal sums on all workers.

With more, a convolution's activations outgrow the cache: 512 took twice the time.
"""

GPU_BLOCK = 2**12
"""The same on a GPU, where a launch takes longer than 128 small samples."""

GPU_FLOATS = 2**22
"""Numbers in the inputs of such a block, unless those of `BLOCK` are more."""


def block_size(x: Tensor) -> int:
    """Return how many of some samples, (n, ...), are in a forward pass."""
    if x.device.type == "cpu":
        return BLOCK
    floats = max(1, x.shape[1:].numel())
    return max(BLOCK, min(GPU_BLOCK, GPU_FLOATS // floats))


def blocks_of(x: Tensor) -> tuple[Tensor, ...]:
    """Return samples, (n, ...), in the blocks of forward passes."""
    return torch.split(x, block_size(x))


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
    return torch.cat([model.module(block) for block in blocks_of(x)])


@torch.no_grad()
def information(model: FlatModel, x: Tensor) -> float:
    """Return what predictions tell of their inputs, (n, ...), in nats; no labels.

    The entropy of the mean prediction less the mean entropy of predictions (Bridle et
    al., NIPS 1991): a model that fits is sure of each sample, but not of one label.
    """
    shares = logits(model, x).double().softmax(1)
    of_mean = entr(shares.mean(0)).sum()
    mean = entr(shares).sum(1).mean()
    return float(of_mean - mean)


def evaluate(
    model: FlatModel,
    x: Tensor,
    y: Tensor,
    spread: Callable[..., Iterable[Any]] = map,
    note: Note | None = None,
    shift: FloatArray | None = None,
) -> tuple[float, int]:
    """Return the mean cross-entropy and the number of correct predictions.

    Parameters
    ----------
    model : FlatModel
        With the weights to test.
    x, y : Tensor
        Inputs and labels, shapes (n, ...) and (n,).
    spread : callable
        Maps over blocks; a thread pool's ``map`` gives the same bits.
    note : callable, optional
        Is given the logits and labels of each block.
    shift : ndarray, optional
        What is added to the logits of each sample, shape (L,), float32.

    Returns
    -------
    float, int

    Raises
    ------
    ValueError
        If there are no samples.
    """
    if y.shape[0] == 0:
        raise ValueError("the client has no test samples in this round")
    switch_mode(model, training=False)
    model.passes += len(y)
    x_blocks = blocks_of(x)
    y_blocks = torch.split(y, block_size(x))
    added = None if shift is None else torch.from_numpy(shift).to(x.device)
    test = partial(_test_block, model.module, note, added)
    tested = spread(test, x_blocks, y_blocks)
    loss = 0.0
    correct = 0
    for y_block, (block_loss, block_correct) in zip(y_blocks, tested, strict=True):
        loss += block_loss * (len(y_block) / len(y))
        correct += block_correct
    return loss, correct


@torch.no_grad()
def _test_block(
    module: nn.Module, note: Note | None, shift: Tensor | None, x: Tensor, y: Tensor
) -> tuple[float, int]:
    logits = module(x)
    if shift is not None:
        logits = logits + shift
    if note is not None:
        note(logits, y)
    return float(cross_entropy(logits, y)), int((logits.argmax(1) == y).sum())
