"""What a network keeps from one call to the next beside its flat vector.

One network serves all clients of a worker. Counters, caches and buffers that are not
saved would take traces of one client's data to the next, and make results depend on who
came before. They are put back, before each task, to what they were when the network was
built: a copy of it, but for its weights, is kept for that (`FlatModel.load`).
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from io import BytesIO
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.modules.batchnorm import _NormBase

from cfl_flower.errors import ConfigError

STATELESS = {"cfl_flower", "torch", "torchvision"}
"""Packages whose layers keep nothing but buffers."""

OF_TORCH = vars(nn.Module()).keys() | {"grad"}
"""Attributes that every module has, for torch's own use."""

PLAIN = (bool, int, float, str, bytes, type(None))
"""Types of values that nobody can change in place."""

LACKS: tuple[bytes | None, list[Tensor]] = (None, [])
"""Mark of an attribute that is missing, or cannot be written."""


@dataclass(frozen=True)
class Observed:
    """What some steps of training changed in a network, beside what is trained."""

    statistics: frozenset[str]
    """Names of buffers that travel: saved, of floats, and changed by training; all that
    are finite of a network that counts, or remembers anything else."""
    frozen: frozenset[str] = frozenset()
    """Names of frozen parameters that were changed all the same."""
    remembers: bool = False
    """Whether anything else changed but numbers of buffers, such as an attribute."""


def saved_floats(module: nn.Module) -> frozenset[str]:
    """Return the names of a network's persistent floating-point buffers."""
    floats = {n for n, each in module.named_buffers() if each.is_floating_point()}
    return frozenset(floats.intersection(module.state_dict()) if floats else ())


def needs_observing(module: nn.Module) -> bool:
    """Return whether only training tells what a network keeps.

    Of torch's layers it is known: BatchNorm's statistics change, and there is nothing
    else but counters.
    """
    layers = list(module.named_modules())
    norms = {name for name, layer in layers if isinstance(layer, _NormBase)}
    floats = {name.rpartition(".")[0] for name in saved_floats(module)}
    return not floats <= norms or bool(own_layers(module))


def example_batch(shape: tuple[int, ...]) -> Tensor:
    """Return two inputs that every dataset might have: of zeros, and of ones."""
    return torch.stack([torch.zeros(shape), torch.ones(shape)])


def train_twice(module: nn.Module, x: Tensor) -> None:
    """Train a network for two steps, in which all its weights move."""
    y = torch.arange(len(x)) % 2
    for _ in range(2):
        cross_entropy(module(x), y).backward()  # type: ignore[no-untyped-call]
        for parameter in module.parameters():
            if parameter.requires_grad:
                # An average of them changes with them, not with their gradients.
                parameter.data.add_(0.01)


def observe(module: nn.Module, shape: tuple[int, ...]) -> Observed:
    """Train a network, which is of no use afterwards, for two steps; tell what changed.

    A network that cannot be trained changes nothing; `check_network` says why. Raises
    `ConfigError` for weights that would be lost.
    """
    floats = saved_floats(module)
    before = _tensors(module)
    own = attributes(module)
    parameters = dict(module.named_parameters())
    buffers = dict(module.named_buffers())
    trained = {n for n, each in parameters.items() if each.requires_grad}
    beside = {n: [each] for n, each in before.items()} | {n: own[n][1] for n in own}
    copies = {
        name
        for name, some in beside.items()
        for one, n in product(some, trained)
        # Zeros are no copy of other zeros.
        if same(one, before[n]) and bool((one != one.flatten()[:1]).any())
    }
    module.train()
    with torch.enable_grad():
        train_twice(module, example_batch(shape))
        # Some change with larger numbers or batches, or those below 0, alone; others
        # take no such numbers.
        for scale in (999, -999):
            with suppress(Exception):
                many = example_batch(shape).repeat(4, *[1] * len(shape))
                train_twice(module, many * scale)
    after = _tensors(module)
    changed = {n for n, old in before.items() if not same(old, after.get(n))}
    # A state that grows is no statistic of a model.
    lasting = {n for n in floats if before[n].shape == after[n].shape}
    statistics = frozenset(lasting & changed)
    now = attributes(module)
    names = [n for n in own | now if own.get(n, LACKS)[0] != now.get(n, LACKS)[0]]
    counters = changed - {*floats, *parameters}
    if names or any(not n.endswith("num_batches_tracked") for n in counters):
        # Whoever counts may begin with a statistic later.
        statistics |= {n for n in lasting if bool(before[n].isfinite().all())}
    lost = copies & {*(changed - statistics - trained), *names}
    # Of the weights of each step, such as normalised ones.
    lost -= {n for n, (_, some) in now.items() if any(each.grad_fn for each in some)}
    # Layers in a plain list, which torch does not find, have gradients all the same.
    lost |= {n for n, (_, some) in own.items() if any(map(_is_trained, some))}
    if lost:
        raise ConfigError(
            f"model: {type(module).__name__} has weights in {', '.join(sorted(lost))} "
            "that are neither trained nor sent: each task would begin with those of "
            "the network as built; put layers into a torch.nn.ModuleList, and a moving "
            "average into register_buffer, or make it in a task's first forward pass"
        )
    frozen = frozenset(changed.intersection(parameters) - trained)
    found = dict(module.named_buffers())
    replaced = [n for n, each in buffers.items() if found.get(n) is not each]
    return Observed(statistics, frozen, bool(names or frozen or replaced))


def own_layers(module: nn.Module) -> list[nn.Module]:
    """Return those of a network's layers that are of a class of its author's."""
    kinds = [(each, type(each).__module__) for each in module.modules()]
    return [each for each, of in kinds if of.partition(".")[0] not in STATELESS]


def _values(module: nn.Module) -> dict[str, Any]:
    """Return each attribute of a network's layers that is its author's, by its name."""
    return {
        f"{name}.{key}".lstrip("."): value
        for name, layer in module.named_modules()
        for key, value in vars(layer).items()
        if key not in OF_TORCH
    }


def attribute_marks(module: nn.Module) -> dict[str, Any]:
    """Return marks of its layers' attributes: others if a later step changed one."""
    # Code of its author may change torch's layers, too.
    found = attributes(module) if own_layers(module) else {}
    return {name: mark for name, (mark, _) in found.items()}


def uncopied(module: nn.Module) -> list[Any]:
    """Return attributes of a network's layers that nobody can copy, such as a lock.

    All copies of the network share them.
    """
    found = []
    for value in _values(module).values():
        if not (isinstance(value, PLAIN) or torch.is_tensor(value)):
            try:
                deepcopy(value)
            except Exception:  # noqa: BLE001 - any; classes refuse in ways of their own
                found.append(value)
    return found


def _is_trained(tensor: Tensor) -> bool:
    return isinstance(tensor, nn.Parameter) and tensor.grad is not None


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return copies of a network's parameters and buffers by their names."""
    tensors = [*module.named_parameters(), *module.named_buffers()]
    return {name: each.detach().clone() for name, each in tensors}


def same(old: Tensor, new: Tensor | None) -> bool:
    """Return whether two tensors hold equal numbers, or none at the same places."""
    if new is None or new.shape != old.shape or new.dtype != old.dtype:
        return False
    # NaN, as "not set yet", is equal to itself here.
    return bool(torch.isclose(old, new, rtol=0, atol=0, equal_nan=True).all())


def attributes(module: nn.Module) -> dict[str, tuple[Any, list[Tensor]]]:
    """Return `_values`, plain or as texts, and tensors in each that are no parts."""
    tensors = [*module.parameters(), *module.buffers()]
    parts = {id(part): n for n, part in enumerate([*module.modules(), *tensors])}
    return {
        name: (value, []) if isinstance(value, PLAIN) else written(value, parts)
        for name, value in _values(module).items()
    }


class _Writer(pickle.Pickler):
    """Writes values in which parts of the network are numbers."""

    def __init__(self, file: BytesIO, parts: Mapping[int, int]) -> None:
        super().__init__(file)
        self.parts = parts
        self.tensors: list[Tensor] = []

    def persistent_id(self, value: Any) -> int | None:
        """Return the number of a part; called for all that a value holds."""
        number = self.parts.get(id(value))
        if number is None and torch.is_tensor(value):
            self.tensors.append(value)
        return number


def written(value: Any, parts: Mapping[int, int]) -> tuple[bytes | None, list[Tensor]]:
    """Return a value as bytes, None for one that has none, and the tensors in it.

    ``parts`` has the number of each part of the network by its id.
    """
    file = BytesIO()
    writer = _Writer(file, parts)
    try:
        writer.dump(value)
    except Exception:  # noqa: BLE001 - any; what has no text tells by what it does
        return LACKS
    return file.getvalue(), writer.tensors
