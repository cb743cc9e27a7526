"""The work of a script, how it says what it has done, and its networks in torch."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

DONE = "a round is done"


@dataclass(frozen=True)
class Job:
    """FedAvg from one model, or IFCA from several, on the data in a folder.

    Of n clients with s samples each there are ``x.npy``, shape (n, s, 1, 28, 28), and
    ``y.npy``, shape (n, s), and of the k initial models ``start.npy``, shape (k, d).
    """

    folder: str
    shapes: list[list[int]]
    """Of the parameters, as torch has them."""
    rounds: int
    participants: int
    workers: int
    """Processes that train, where a library has them."""
    epochs: int
    batch_size: int
    learning_rate: float
    overrides: list[str]
    """The same as settings of ours."""

    def load(self, name: str) -> Any:
        """Return an array of the folder, as a memory map."""
        return np.load(Path(self.folder, f"{name}.npy"), mmap_mode="r")


def build(shapes: list[list[int]]) -> Any:
    """Build dense layers with ReLU between them, or FedCCFA's network for images.

    By the shapes of weights and biases, as torch has them.
    """
    from torch import nn

    dense = [shape for shape in shapes[::2] if len(shape) == 2]
    convolutions = [shape for shape in shapes if len(shape) == 4]
    between = nn.LeakyReLU if convolutions else nn.ReLU
    layers: list[Any] = []
    for padding, (outputs, inputs, size, _) in enumerate(convolutions):
        convolution = nn.Conv2d(inputs, outputs, size, padding=padding)
        layers += [convolution, between(), nn.MaxPool2d(2)]
    layers.append(nn.Flatten())
    for outputs, inputs in dense:
        layers += [nn.Linear(inputs, outputs), between()]
    return nn.Sequential(*layers[:-1])


def set_parameters(module: Any, vector: Any) -> Any:
    """Copy a vector, shape (d,), into a network and return it."""
    import torch
    from torch.nn.utils import vector_to_parameters

    vector_to_parameters(torch.from_numpy(np.array(vector)), module.parameters())
    return module


def get_parameters(module: Any) -> Any:
    """Return a network's parameters, shape (d,)."""
    from torch.nn.utils import parameters_to_vector

    return parameters_to_vector(module.parameters()).detach().numpy()


def lap() -> None:
    """Say that a round is done."""
    print(f"\n{DONE}", flush=True)


def carry_out(run: Callable[[Job], Any]) -> None:
    """Do the job on the command line, and save the models that come of it."""
    job = Job(**json.loads(sys.argv[1]))
    np.save(Path(job.folder, "models.npy"), np.asarray(run(job), np.float32))
