"""The three networks as one writes them in torch, for the libraries that take those."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters


def build(network: str) -> nn.Sequential:
    """Build a network for images of 28x28 and ten labels."""
    if network == "mclr":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    if network == "mlp":
        return nn.Sequential(
            nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 10)
        )
    return nn.Sequential(
        nn.Conv2d(1, 16, 5),
        nn.LeakyReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=1),
        nn.LeakyReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(800, 128),
        nn.LeakyReLU(),
        nn.Linear(128, 10),
    )


def load(module: nn.Module, vector: Any) -> nn.Module:
    """Copy a vector, shape (d,), into a network and return it."""
    vector_to_parameters(torch.from_numpy(np.array(vector)), module.parameters())
    return module


def vector(module: nn.Module) -> Any:
    """Return a network's parameters, shape (d,)."""
    return parameters_to_vector(module.parameters()).detach().numpy()
