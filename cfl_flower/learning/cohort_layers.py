"""Layers that train many models at once as each would alone.

A cohort maps the gradient of one network over its clients' weights and fills up smaller
batches. Dropout then has to draw for each client by itself, and BatchNorm has to leave
out the filling. Both are replaced by layers of the same parameters that are told, in
each step, whose it is.
"""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

MASK = 2**32 - 1

STRIDE = 0x9E3779B9
"""The golden ratio in 32 bits, by which numbers that are hashed in turn differ."""

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class Dropout(nn.Module):
    """Dropout whose draws follow from a client's seed, the step and the layer.

    So a client draws the same in whatever cohort it trains.
    """

    def __init__(self, layer: _DropoutNd, number: int) -> None:
        super().__init__()
        self.rate = layer.p
        self.whole_channels = not isinstance(layer, nn.Dropout)
        self.number = number
        self.drawn: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return the inputs, (b, ...), of which a share is 0 and the rest is larger."""
        if self.rate == 1:
            return x * 0
        assert self.drawn is not None
        kept = list(x.shape)
        if self.whole_channels:
            kept[2:] = [1] * len(kept[2:])
        places = torch.arange(prod(kept), device=x.device).view(kept)
        numbers = scramble(scramble(places) ^ scramble(self.drawn + self.number))
        # A network may call one layer twice; 0 alone would stay what it is.
        self.drawn = scramble(self.drawn + STRIDE)
        return torch.where(numbers >= self.rate * 2**32, x / (1 - self.rate), 0.0)


def scramble(numbers: Tensor) -> Tensor:
    """Return int64 numbers whose lower 32 bits depend evenly on those of the inputs.

    Two multiplications with shifts between them (Mueller, 2019; Wellons' `lowbias32`).
    """
    mixed = numbers & MASK
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        mixed = ((mixed ^ (mixed >> shift)) * factor) & MASK
    return mixed ^ (mixed >> 16)


class BatchNorm(nn.Module):
    """BatchNorm over those samples of a batch that are there.

    Its new running statistics are left in ``moved``: torch maps no writing into the old
    ones.
    """

    def __init__(self, layer: _BatchNorm) -> None:
        super().__init__()
        self.eps = layer.eps
        self.momentum = layer.momentum or 0.0
        self.weight = layer.weight
        self.bias = layer.bias
        self.running_mean: Tensor | None
        self.running_var: Tensor | None
        self.register_buffer("running_mean", layer.running_mean)
        self.register_buffer("running_var", layer.running_var)
        self.there: Tensor | None = None
        self.moved: dict[str, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        """Return normalised inputs, (b, c, ...); statistics are of each channel."""
        assert self.there is not None
        across = [0, *range(2, x.dim())]
        wide = [1, -1, *[1] * (x.dim() - 2)]
        there = self.there.view(-1, *[1] * (x.dim() - 1))
        count = (self.there.sum() * prod(x.shape[2:])).clamp(min=1)
        mean = (x * there).sum(across) / count
        centred = x - mean.view(wide)
        variance = (centred.square() * there).sum(across) / count
        if self.running_mean is not None and self.running_var is not None:
            unbiased = variance * count / (count - 1).clamp(min=1)
            # A network may call one layer twice.
            old = self.moved or dict(self.named_buffers())
            self.moved = {
                "running_mean": self._move(old["running_mean"], mean),
                "running_var": self._move(old["running_var"], unbiased),
            }
        scaled = centred * torch.rsqrt(variance + self.eps).view(wide)
        if self.weight is None:
            return scaled
        return scaled * self.weight.view(wide) + self.bias.view(wide)

    def _move(self, old: Tensor, new: Tensor) -> Tensor:
        return torch.lerp(old, new.detach().to(old), self.momentum)


def prepare_layers(network: nn.Module) -> None:
    """Replace a network's layers of dropout and BatchNorm by those of a cohort.

    Those in evaluation mode, in which their author keeps them, neither draw nor move.
    Raises `ValueError` for a layer that a cohort cannot have.
    """
    number = 0
    made: dict[nn.Module, nn.Module] = {}
    for name, layer in network.named_modules():
        if not layer.training:
            continue
        if isinstance(layer, _DropoutNd):
            number += 1
            if type(layer) not in (nn.Dropout, nn.Dropout1d, nn.Dropout2d):
                raise ValueError(f"{name} is {type(layer).__name__}")
            made[layer] = Dropout(layer, number)
        elif isinstance(layer, _BatchNorm):
            if type(layer) not in NORMS or layer.momentum is None:
                raise ValueError(f"{name} is no plain BatchNorm, or counts its batches")
            made[layer] = BatchNorm(layer)
    # A layer may have several names.
    for name, layer in list(network.named_modules(remove_duplicate=False)):
        if layer in made:
            network.set_submodule(name, made[layer])


def draws(network: nn.Module) -> bool:
    """Return whether a network has layers that draw in training."""
    return any(isinstance(each, _DropoutNd | Dropout) for each in network.modules())
