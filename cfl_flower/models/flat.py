"""A model as one flat vector."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cfl_flower.errors import ConfigError
from cfl_flower.models.base import ModelSettings
from cfl_flower.seeding import torch_seed
from cfl_flower.types import FloatArray, Vector


@dataclass(frozen=True)
class Split:
    """Where a model's vector holds the classifier; all else is the extractor.

    The classifier's part, from start to stop, has first its weights, class by class,
    then the biases.
    """

    start: int
    stop: int
    classes: int
    """L."""
    width: int
    """D, the length of a representation."""
    length: int
    """d, of the whole vector."""

    @property
    def part(self) -> slice:
        """The extractor's weights among a model's weights, which it opens."""
        return slice(0, self.start)

    @property
    def lengths(self) -> tuple[int, int]:
        """The lengths of the extractor, running statistics included, and classifier."""
        size = self.stop - self.start
        return self.length - size, size

    def divide(self, vector: Vector) -> tuple[Vector, Vector]:
        """Return copies of the extractor's and the classifier's part of a vector."""
        extractor = np.concatenate([vector[: self.start], vector[self.stop :]])
        return extractor, vector[self.start : self.stop].copy()

    def join(self, extractor: Vector, classifier: Vector) -> Vector:
        """Return the vector of two parts."""
        ends = extractor[: self.start], extractor[self.start :]
        return np.concatenate([ends[0], classifier, ends[1]])

    def rows(self, classifier: Vector) -> FloatArray:
        """Return each class's weights and, last, its bias, shape (L, D + 1)."""
        weights, biases = np.split(classifier, [self.classes * self.width])
        return np.column_stack([weights.reshape(self.classes, self.width), biases])

    def flatten(self, rows: FloatArray) -> Vector:
        """Return the classifier of its rows, shape (L * (D + 1),)."""
        parts = rows[:, :-1].ravel(), rows[:, -1]
        return np.concatenate(parts).astype(np.float32)


def split_module(module: nn.Module) -> Split:
    """Return the split of a network.

    Raises `ConfigError` if it does not end with a linear classifier with a bias, to be
    trained.
    """
    classifier: Any = getattr(module, "classifier", None)
    linear = isinstance(classifier, nn.Linear) and classifier.bias is not None
    if not linear or not hasattr(module, "extractor"):
        raise ConfigError(
            f"model: {type(module).__name__} has no linear classifier with a bias on "
            "top of an extractor, which the strategy trains by itself; use another"
        )
    weight = classifier.weight
    bias = classifier.bias
    *rest, last_weight, last_bias = module.parameters()
    if last_weight is not weight or last_bias is not bias:
        raise ConfigError("model: its classifier's parameters must be its last ones")
    if not (weight.requires_grad and bias.requires_grad):
        raise ConfigError(
            f"model: {type(module).__name__} has a frozen classifier, which the "
            "strategy trains by itself; use another"
        )
    rest = [each for each in rest if each.requires_grad]
    start = _count(rest)
    stop = start + _count([weight, bias])
    classes, width = weight.shape
    return Split(start, stop, classes, width, stop + _count(_statistics(module)))


class FlatModel:
    """A network whose tensors are views of two flat ones.

    The vector is what travels and is averaged. A network with BatchNorm carries its
    running means and variances behind the parameters, or a device would test a mean of
    models with the statistics of another one; training's optimiser must step on
    ``weights`` alone. Frozen parameters (``requires_grad`` is false) are in neither:
    they stay what the network was built with, which `build_network` makes the same in
    every process of a run.

    Attributes
    ----------
    module : torch.nn.Module
    vector : Tensor, shape (d,)
        All trainable parameters in the order of ``module.parameters()``, then all
        persistent floating-point buffers in the order of ``module.buffers()``.
    weights : Tensor, shape (p,)
        The p <= d parameters: the first entries of ``vector``, not a copy.
    gradient : Tensor, shape (p,)
        Their gradients, in the same order.
    passes : int
        Forward passes over one sample that were done with it, a training step's forward
        and backward pass counting three: what `devices` makes seconds of.
    least_batch : int or None
        The fewest samples of a training step, once `learning.training` has found out.
    alike : Hashable
        Networks with an equal one compute the same function of their vectors.
    """

    def __init__(
        self,
        module: nn.Module,
        device: torch.device | str = "cpu",
        alike: Hashable = None,
    ) -> None:
        self.module = module.to(device)
        self.alike = alike or module
        parameters = trainable(module)
        tensors = [*parameters, *_statistics(module)]
        self.vector = torch.cat([tensor.detach().flatten() for tensor in tensors])
        # Sets the data of a tensor, be it a parameter or a buffer, to its part.
        nn.utils.vector_to_parameters(self.vector, tensors)
        self.weights = self.vector[: _count(parameters)]
        self.gradient = torch.zeros_like(self.weights)
        self.passes = 0
        self.least_batch: int | None = None
        parts = torch.split(self.gradient, [each.numel() for each in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.grad = part.view_as(parameter)

    @cached_property
    def split(self) -> Split:
        """Where the vector holds the classifier."""
        return split_module(self.module)

    @property
    def extractor(self) -> nn.Module:
        """What makes a representation of an input."""
        extractor = self.module.extractor
        assert isinstance(extractor, nn.Module)
        return extractor

    def clone(self) -> FlatModel:
        """Return another model of the same network, with a vector of its own."""
        return FlatModel(deepcopy(self.module), self.vector.device, self.alike)

    def load(self, vector: Vector) -> FlatModel:
        """Copy a vector of d floats into the network and return self.

        Raises `ValueError` for a vector of another length.
        """
        found = len(vector)
        wanted = len(self.vector)
        if found != wanted:
            # One number would be taken for all of them.
            raise ValueError(f"a vector of {found} numbers for a network of {wanted}")
        self.vector.copy_(torch.from_numpy(vector))
        return self

    def to_vector(self) -> Vector:
        """Return a copy of the d floats."""
        array: Vector = self.vector.cpu().numpy().copy()
        return array


def trainable(module: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that training changes, in their order."""
    return [each for each in module.parameters() if each.requires_grad]


def count_weights(module: nn.Module) -> int:
    """Return p, the number of trainable weights."""
    return _count(trainable(module))


def count_floats(module: nn.Module) -> int:
    """Return d, the length of a network's vector."""
    return count_weights(module) + _count(_statistics(module))


def _count(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() for tensor in tensors)


def _statistics(module: nn.Module) -> list[Tensor]:
    """Return the buffers that are part of the model, without mere counters."""
    kept = module.state_dict()
    return [
        buffer
        for name, buffer in module.named_buffers()
        if name in kept and buffer.is_floating_point()
    ]


def has_extractor(
    settings: ModelSettings, shape: tuple[int, ...], classes: int
) -> bool:
    """Return whether a network has weights to train below its classifier.

    One that is not divided into extractor and classifier counts as having some.
    """
    extractor = getattr(meta_network(settings, shape, classes), "extractor", None)
    return extractor is None or bool(trainable(extractor))


def meta_network(
    settings: ModelSettings, shape: tuple[int, ...], classes: int
) -> nn.Module:
    """Build a network without memory for its weights, to look at its layers."""
    with torch.device("meta"):
        return settings.build(shape, classes)


def check_network(
    settings: ModelSettings, shape: tuple[int, ...], classes: int
) -> nn.Module:
    """Return a network, or raise `ConfigError` for one that does not fit a dataset.

    It must give ``classes`` numbers for each input, and have something to train.
    """
    # Not a hollow one: what torch maps to other operations there imports its compiler.
    with torch.random.fork_rng(devices=[]):
        network = settings.build(shape, classes).eval()
    try:
        with torch.no_grad():
            found = network(torch.zeros(2, *shape))
    except (RuntimeError, TypeError, ValueError) as error:
        raise ConfigError(
            f"model: {type(network).__name__} fails on inputs of shape {shape} "
            f"({type(error).__name__}: {str(error).partition(chr(10))[0]}); fix its "
            "build(shape, classes) or its forward"
        ) from error
    name = type(network).__name__
    if not trainable(network):
        raise ConfigError(
            f"model: {name} has no trainable parameters; leave requires_grad true for "
            "those that are to be trained"
        )
    shape_found = tuple(getattr(found, "shape", ()))
    if shape_found != (2, classes):
        raise ConfigError(
            f"model: {name} returns {shape_found} for 2 inputs; it must return "
            f"(2, {classes}), a number for each of the dataset's classes"
        )
    return network


def build_network(
    settings: ModelSettings, shape: tuple[int, ...], classes: int, seed: int
) -> nn.Module:
    """Build a run's network, with its initial weights and its frozen parameters.

    They follow from the run's seed, so that frozen parameters need not be sent: every
    process of the run has them. Torch's own generator is left alone.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(seed, "initial-model"))
        return settings.build(shape, classes)


def initial_vector(
    settings: ModelSettings, shape: tuple[int, ...], classes: int, seed: int
) -> Vector:
    """Return the run's common initial model, shape (d,)."""
    vector = FlatModel(build_network(settings, shape, classes, seed)).to_vector()
    return np.ascontiguousarray(vector, dtype=np.float32)
