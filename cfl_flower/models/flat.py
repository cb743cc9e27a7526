"""A model as one flat vector."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from cfl_flower.errors import ConfigError
from cfl_flower.models.outside import copy_hooks
from cfl_flower.models.own_state import (
    Observed,
    attribute_marks,
    own_layers,
    saved_floats,
    uncopied,
)
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


def _split(module: nn.Module, length: int) -> Split:
    """Return the split of a network whose vector has a length.

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
    inner: Iterable[Tensor] = getattr(module.extractor, "parameters", tuple)()
    shared = {id(weight), id(bias)}.intersection(map(id, inner))
    if last_weight is not weight or last_bias is not bias or shared:
        raise ConfigError(
            "model: its classifier's parameters must be its last ones, and in no part "
            "of its extractor"
        )
    if not (weight.requires_grad and bias.requires_grad):
        raise ConfigError(
            f"model: {type(module).__name__} has a frozen classifier, which the "
            "strategy trains by itself; use another"
        )
    rest = [each for each in rest if each.requires_grad]
    start = _count(rest)
    stop = start + _count([weight, bias])
    classes, width = weight.shape
    return Split(start, stop, classes, width, length)


class FlatModel:
    """A network whose tensors are views of two flat ones.

    The vector is what travels and is averaged. A network with BatchNorm carries its
    running means and variances behind the parameters, or a device would test a mean of
    models with the statistics of another one; training's optimiser must step on
    ``weights`` alone. Frozen parameters (``requires_grad`` is false) and constants are
    in neither: they stay what the network was built with, which `build_network` makes
    the same in every process of a run. What else a network keeps is put back whenever a
    model is loaded, by a new copy of the network as built if need be.

    Attributes
    ----------
    module : torch.nn.Module
        May be another one after `load`.
    vector : Tensor, shape (d,)
        All trainable parameters in the order of ``module.parameters()``, then the
        persistent floating-point buffers that training changes, in the order of
        ``module.buffers()``.
    weights : Tensor, shape (p,)
        The p <= d parameters: the first entries of ``vector``, not a copy.
    gradient : Tensor, shape (p,)
        Their gradients, in the same order.
    passes : int
        Forward passes over one sample that were done with it, a training step's forward
        and backward pass counting three: what `devices` makes seconds of. A test's do
        not count (`uncounted`).
    least_batch : int or None
        The fewest samples of a training step, once `learning.training` has found out.
    alike : Hashable
        Networks with an equal one compute the same function of their vectors.
    observed : Observed
        What training was seen to change; by default all buffers that it may.
    remembers : bool
        Whether the network keeps more beside the vector than counts of batches.
    """

    def __init__(
        self,
        module: nn.Module,
        device: torch.device | str = "cpu",
        alike: Hashable = None,
        observed: Observed | None = None,
    ) -> None:
        self.module = module.to(device)
        # Not `alike or module`: some modules have a length, and torch.compile's none.
        self.alike = module if alike is None else alike
        self.observed = observed or Observed(saved_floats(module))
        parameters = trainable(module)
        buffers = dict(module.named_buffers())
        still = [name for name in buffers if name not in self.observed.statistics]
        counts = (name.endswith("num_batches_tracked") for name in still)
        self.remembers = self.observed.remembers or not all(counts)
        self._statistics = {n: it for n, it in buffers.items() if n not in still}
        tensors = [*parameters, *self._statistics.values()]
        self.vector = torch.cat([tensor.detach().flatten() for tensor in tensors])
        # Sets the data of a tensor, be it a parameter or a buffer, to its part.
        nn.utils.vector_to_parameters(self.vector, tensors)
        self.weights = self.vector[: _count(parameters)]
        self.gradient = torch.zeros_like(self.weights)
        self.passes = 0
        self.least_batch: int | None = None
        parts = torch.split(self.gradient, [each.numel() for each in parameters])
        pairs = zip(parameters, parts, strict=True)
        self._gradients = [(each, part.view_as(each)) for each, part in pairs]
        self.bind_gradients()
        self._trained = [(each, each.requires_grad) for each in module.parameters()]
        kept = still or own_layers(module)
        self._shared = uncopied(module) if kept else []
        self._as_built = self._with_vector(module) if kept else module
        self._marks = attribute_marks(module)
        self._still = self._other_buffers()

    @cached_property
    def split(self) -> Split:
        """Where the vector holds the classifier."""
        return _split(self.module, len(self.vector))

    @property
    def extractor(self) -> nn.Module:
        """What makes a representation of an input."""
        return cast(nn.Module, self.module.extractor)

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Within it passes are not counted: they measure no part of the method."""
        passes = self.passes
        yield
        self.passes = passes

    def clone(self) -> FlatModel:
        """Return another model of the same network, with a vector of its own."""
        module = deepcopy(self._as_built, {id(each): each for each in self._shared})
        copy_hooks(self.module, module)
        return FlatModel(module, self.vector.device, self.alike, self.observed)

    def load(self, vector: Vector) -> FlatModel:
        """Copy a vector into the network; what else it keeps is as built again.

        Parameters
        ----------
        vector : Vector, shape (d,)
            The weights, then the running statistics.

        Returns
        -------
        FlatModel
            Itself.

        Raises
        ------
        ValueError
            For a vector of another length.
        """
        found = len(vector)
        wanted = len(self.vector)
        if found != wanted:
            # One number would be taken for all of them.
            raise ValueError(f"a vector of {found} numbers for a network of {wanted}")
        self.vector.copy_(torch.from_numpy(vector))
        self._put_back()
        return self

    def bind_gradients(self) -> None:
        """Let gradients be written to ``gradient`` again after torch's zero_grad()."""
        for parameter, part in self._gradients:
            if parameter.grad is not part:
                parameter.grad = part.zero_()

    def _put_back(self) -> None:
        """Make all that is not in the vector what it was when the network was built."""
        for parameter, trained in self._trained:
            parameter.requires_grad_(trained)
        if self.observed.remembers or attribute_marks(self.module) != self._marks:
            self.module = self._with_vector(self._as_built)
            self._marks = attribute_marks(self.module)
            self._still = self._other_buffers()
        for buffer, value in self._still:
            buffer.copy_(value)
        # A layer's own mode is nothing that goes to the next client.
        self.module.train(self.module.training)

    def _other_buffers(self) -> list[tuple[Tensor, Tensor]]:
        """Return the buffers that are not in the vector, and those as built."""
        pairs = zip(self.module.named_buffers(), self._as_built.buffers(), strict=True)
        return [(of, two) for (n, of), two in pairs if n not in self._statistics]

    def _with_vector(self, module: nn.Module) -> nn.Module:
        """Return a copy of a network whose parameters and statistics are the same."""
        frozen = self.observed.frozen
        named = module.named_parameters()
        parameters = [each for name, each in named if name not in frozen]
        same = [*parameters, *self._statistics.values(), *self._shared]
        kept = {id(each): each for each in same}
        values = [each for layer in module.modules() for each in vars(layer).values()]
        for value in filter(torch.is_tensor, values):
            if value.grad_fn:
                # torch copies no tensor that an operation made: a normalised weight.
                kept[id(value)] = value.detach().clone()
        return deepcopy(module, kept)

    def travelling(self) -> dict[str, Tensor]:
        """Return the parts of the vector by their names."""
        named = self.module.named_parameters()
        return {n: each for n, each in named if each.requires_grad} | self._statistics

    def lost_parameters(self) -> list[str]:
        """Return the names of parameters that are no longer parts of the vector."""
        first = self.weights.data_ptr()
        last = first + self.weights.nbytes
        return [
            name
            for name, each in self.module.named_parameters()
            if each.requires_grad
            and each.numel()
            and not first <= each.data_ptr() < last
        ]

    def to_vector(self) -> Vector:
        """Return a copy of the d floats."""
        if self.observed.remembers:
            # A network may put new statistics in the place of the old ones.
            found = dict(self.module.named_buffers())
            for name, tensor in self._statistics.items():
                if found[name] is not tensor:
                    tensor.copy_(found[name].detach())
        pinned = self.vector.is_cuda
        host = torch.empty_like(self.vector, device="cpu", pin_memory=pinned)
        return host.copy_(self.vector).numpy()


def trainable(module: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that training changes, in their order."""
    return [each for each in module.parameters() if each.requires_grad]


def _count(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() for tensor in tensors)
