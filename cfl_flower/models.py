"""Networks, and a model as one flat vector.

Every network adapts to the dataset's input shape and number of classes. On the wire
and on the server a model is one float32 vector; `FlatModel` lets torch train that very
vector, so that nothing is copied layer by layer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from cfl_flower.seeding import torch_seed
from cfl_flower.settings import require
from cfl_flower.types import Vector


class ModelSettings(Protocol):
    """Settings that know how to build their network."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Build the network for inputs of ``shape`` (without the batch axis)."""


class SoftmaxRegression(nn.Module):
    """One linear layer on the flattened input; `training` knows its gradient.

    ``onehot`` holds the one-hot code of each label, shape (classes, classes).
    """

    onehot: Tensor

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.classifier = nn.Linear(inputs, classes)
        self.register_buffer("onehot", torch.eye(classes), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, shape (n, classes)."""
        logits: Tensor = self.classifier(x.flatten(1))
        return logits


class Perceptron(nn.Module):
    """An extractor with one hidden ReLU layer, and a linear classifier."""

    def __init__(self, inputs: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.extractor = nn.Sequential(
            nn.Flatten(), nn.Linear(inputs, hidden), nn.ReLU()
        )
        self.classifier = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, shape (n, classes)."""
        logits: Tensor = self.classifier(self.extractor(x))
        return logits


@dataclass(frozen=True)
class Mclr:
    """Multinomial logistic regression: 7,850 parameters on MNIST, 650 on digits."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Build the network for inputs of ``shape``."""
        return SoftmaxRegression(math.prod(shape), classes)


@dataclass(frozen=True)
class Mlp:
    """A perceptron with one hidden layer: 101,770 parameters on MNIST at 128.

    Attributes
    ----------
    hidden : int
        Width of the hidden layer.
    """

    hidden: int = 128

    def __post_init__(self) -> None:
        require(self.hidden >= 1, "model.hidden", self.hidden, "a width of at least 1")

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Build the network for inputs of ``shape``."""
        return Perceptron(math.prod(shape), self.hidden, classes)


class FlatModel:
    """A network whose parameters and gradients are views of two flat tensors.

    Attributes
    ----------
    module : torch.nn.Module
    vector : Tensor
        All d parameters, in the order of ``module.parameters()``.
    gradient : Tensor
        Their gradients, in the same order.
    """

    def __init__(self, module: nn.Module, device: torch.device | str = "cpu") -> None:
        self.module = module.to(device)
        parameters = list(module.parameters())
        self.vector = nn.utils.parameters_to_vector(parameters).detach().clone()
        self.gradient = torch.zeros_like(self.vector)
        nn.utils.vector_to_parameters(self.vector, parameters)
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
        """Return a copy of the d parameters."""
        array: Vector = self.vector.cpu().numpy().copy()
        return array


def initial_vector(
    settings: ModelSettings, shape: tuple[int, ...], classes: int, seed: int
) -> Vector:
    """Draw the run's common initial model, leaving torch's own generator alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(seed, "initial-model"))
        vector = FlatModel(settings.build(shape, classes)).to_vector()
    return np.ascontiguousarray(vector, dtype=np.float32)
