"""The networks of a job in torch, for the libraries that take those."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters


def build(shapes: list[list[int]]) -> nn.Sequential:
    """Build dense layers, with ReLU between them, of weights and biases of shapes."""
    layers: list[nn.Module] = [nn.Flatten()]
    for outputs, inputs in shapes[::2]:
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def load(module: nn.Module, vector: Any) -> nn.Module:
    """Copy a vector, shape (d,), into a network and return it."""
    vector_to_parameters(torch.from_numpy(np.array(vector)), module.parameters())
    return module


def vector(module: nn.Module) -> Any:
    """Return a network's parameters, shape (d,)."""
    return parameters_to_vector(module.parameters()).detach().numpy()
