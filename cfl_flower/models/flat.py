"""A model as one flat vector."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from cfl_flower.models.base import ModelSettings
from cfl_flower.seeding import torch_seed
from cfl_flower.types import Vector


class FlatModel:
    """A network whose tensors are views of two flat ones.

    The vector is what travels and is averaged. A network with BatchNorm carries its
    running means and variances behind the parameters, or a device would test a mean of
    models with the statistics of another one; training's optimiser must step on
    ``weights`` alone.

    Attributes
    ----------
    module : torch.nn.Module
    vector : Tensor, shape (d,)
        All parameters in the order of ``module.parameters()``, then all persistent
        floating-point buffers in the order of ``module.buffers()``.
    weights : Tensor, shape (p,)
        The p <= d parameters: the first entries of ``vector``, not a copy.
    gradient : Tensor, shape (p,)
        Their gradients, in the same order.
    """

    def __init__(self, module: nn.Module, device: torch.device | str = "cpu") -> None:
        self.module = module.to(device)
        parameters = list(module.parameters())
        tensors = [*parameters, *_statistics(module)]
        self.vector = torch.cat([tensor.detach().flatten() for tensor in tensors])
        # Sets the data of a tensor, be it a parameter or a buffer, to its part.
        nn.utils.vector_to_parameters(self.vector, tensors)
        self.weights = self.vector[: sum(p.numel() for p in parameters)]
        self.gradient = torch.zeros_like(self.weights)
        start = 0
        for parameter in parameters:
            end = start + parameter.numel()
            parameter.grad = self.gradient[start:end].view_as(parameter)
            start = end

    def load(self, vector: Vector) -> FlatModel:
        """Copy a vector of d floats into the network and return self."""
        self.vector.copy_(torch.from_numpy(vector))
        return self

    def to_vector(self) -> Vector:
        """Return a copy of the d floats."""
        array: Vector = self.vector.cpu().numpy().copy()
        return array


def _statistics(module: nn.Module) -> list[Tensor]:
    """Return the buffers that are part of the model, without mere counters."""
    kept = module.state_dict()
    return [
        buffer
        for name, buffer in module.named_buffers()
        if name in kept and buffer.is_floating_point()
    ]


def initial_vector(
    settings: ModelSettings, shape: tuple[int, ...], classes: int, seed: int
) -> Vector:
    """Draw the run's common initial model, leaving torch's own generator alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(seed, "initial-model"))
        vector = FlatModel(settings.build(shape, classes)).to_vector()
    return np.ascontiguousarray(vector, dtype=np.float32)
