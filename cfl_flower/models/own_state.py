"""What a network keeps from one call to the next beside its flat vector.

One network serves all clients of a worker. Counters, caches and buffers that are not
saved would take traces of one client's data to the next, and make results depend on who
came before. They are put back, before each task, to what they were when the network was
built.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from inspect import getclosurevars
from io import BytesIO
from itertools import product
from types import FunctionType, ModuleType
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.modules.batchnorm import _NormBase

from cfl_flower.errors import ConfigError

STATELESS = {"cfl_flower", "torch", "torchvision"}
"""Packages whose layers keep nothing but buffers."""

GENERATORS = {"random", "numpy"}
"""Packages with generators of their own, whose draws `check_network` refuses."""

OF_TORCH = vars(nn.Module()).keys() | {"grad"}
"""Attributes that every module has, for torch's own use."""

PLAIN = (bool, int, float, str, bytes, type(None))
"""Types of values that nobody can change in place."""

LACKS: tuple[bytes | None, list[Tensor]] = (None, [])
"""What stands for an attribute that is not there, or cannot be written."""


@dataclass(frozen=True)
class Observed:
    """What two steps of training changed in a network, beside what is trained."""

    statistics: frozenset[str]
    """Names of buffers that travel: saved, of floats, and changed by training."""
    attributes: tuple[str, ...] = ()
    """Names of other attributes of its layers that are not what they were."""
    frozen: frozenset[str] = frozenset()
    """Names of frozen parameters that were changed all the same."""


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
    return not floats <= norms or any(_is_own(layer) for _, layer in layers)


def example_batch(shape: tuple[int, ...]) -> Tensor:
    """Return two inputs that every dataset might have: of zeros, and of ones."""
    return torch.stack([torch.zeros(shape), torch.ones(shape)])


def train_twice(module: nn.Module, x: Tensor) -> None:
    """Train a network for two steps, in which all its weights move."""
    y = torch.tensor([0, 1])
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
    own = _attributes(module)
    parameters = dict(module.named_parameters())
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
    after = _tensors(module)
    changed = {n for n, old in before.items() if not same(old, after.get(n))}
    # What grows is no statistic of a model.
    lasting = {n for n in floats if before[n].shape == after[n].shape}
    statistics = frozenset(lasting & changed)
    now = _attributes(module)
    names = [n for n in own | now if own.get(n, LACKS)[0] != now.get(n, LACKS)[0]]
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
    return Observed(statistics, tuple(names), frozen)


def _is_own(layer: nn.Module) -> bool:
    """Return whether a layer's class is its author's."""
    return type(layer).__module__.partition(".")[0] not in STATELESS


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


def _attributes(module: nn.Module) -> dict[str, tuple[bytes | None, list[Tensor]]]:
    """Return each attribute of a network's layers that is its author's, by its name.

    As a text, and with the tensors in it that are no parts of the network.
    """
    parts = {id(part): place for place, part in enumerate(_parts(module))}
    return {
        f"{name}.{key}".lstrip("."): _written(value, parts)
        for name, layer in module.named_modules()
        for key, value in vars(layer).items()
        if key not in OF_TORCH
    }


def _parts(module: nn.Module) -> list[Any]:
    """Return what a network consists of; an attribute may refer to it."""
    return [*module.modules(), *module.parameters(), *module.buffers()]


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


def _written(value: Any, parts: Mapping[int, int]) -> tuple[bytes | None, list[Tensor]]:
    file = BytesIO()
    writer = _Writer(file, parts)
    try:
        writer.dump(value)
    except Exception:  # noqa: BLE001 - any; what has no text tells by what it does
        return LACKS
    return file.getvalue(), writer.tensors


def outside(module: nn.Module) -> dict[str, bytes | None]:
    """Return what the code of a network's layers keeps outside of them, as texts.

    That is: attributes of their classes, and variables of modules and functions that
    methods refer to, or functions which these call. None is what has no text.
    """
    found: dict[str, Any] = {}
    functions: list[FunctionType] = []
    kinds = {
        kind for it in module.modules() if _is_own(it) for kind in type(it).__mro__
    }
    for kind in sorted(kinds, key=str):
        if kind.__module__.partition(".")[0] in {*STATELESS, "builtins"}:
            continue
        values = {f"{kind.__name__}.{n}": it for n, it in vars(kind).items()}
        functions += filter(None, map(_code_of, values.values()))
        found |= {n: it for n, it in values.items() if ".__" not in n}
    known = set[int]()
    while functions:
        function = functions.pop()
        if id(function) in known or "torch" in function.__module__:
            continue
        known.add(id(function))
        values = _referred(function)
        functions += filter(None, map(_code_of, values.values()))
        found |= values
    skipped = (ModuleType, FunctionType, type)
    kept = {n: it for n, it in found.items() if not isinstance(it, skipped)}
    return {name: _written(value, {})[0] for name, value in kept.items()}


def _code_of(value: object) -> FunctionType | None:
    """Return a function, or that of a decorator or property; None for anything else."""
    called = value.fget if isinstance(value, property) else value
    called = getattr(called, "__wrapped__", called)
    return called if isinstance(called, FunctionType) else None


def _referred(function: FunctionType) -> dict[str, Any]:
    """Return the variables of modules and functions that a function refers to."""
    try:
        named = getclosurevars(function)
    except ValueError:  # A variable of the function around it has no value yet.
        return {}
    inner = {f"{function.__qualname__}.{n}": it for n, it in named.nonlocals.items()}
    found = {f"{function.__module__}.{n}": it for n, it in named.globals.items()}
    for module in filter(_may_keep, named.globals.values()):
        # Of a module, what the function names: `module.attribute`.
        names = [n for n in function.__code__.co_names if hasattr(module, n)]
        found |= {f"{module.__name__}.{n}": getattr(module, n) for n in names}
    return inner | found


def _may_keep(value: object) -> TypeGuard[ModuleType]:
    """Return whether a value is a module whose variables may change."""
    if not isinstance(value, ModuleType):
        return False
    return value.__name__.partition(".")[0] not in {*STATELESS, *GENERATORS}


class OwnState:
    """What a network keeps besides what travels, to be put back as it was built.

    Attributes
    ----------
    names : list of str
        Of buffers that do not travel, and of all that two steps of training changed.

    A copy of a network is made together with its state, which refers to it.
    """

    def __init__(self, module: nn.Module, observed: Observed) -> None:
        self._parts = _parts(module)
        layers = dict(module.named_modules())
        tensors = dict(module.named_buffers())
        still = sorted(tensors.keys() - observed.statistics | observed.frozen)
        self.names = [*still, *observed.attributes]
        tensors |= dict(module.named_parameters())
        self._tensors: list[tuple[nn.Module, str, Tensor, Tensor]] = []
        for name in still:
            layer, _, key = name.rpartition(".")
            value = tensors[name].detach().clone()
            self._tensors.append((layers[layer], key, tensors[name], value))
        changed: dict[str, list[str]] = {name: [] for name in layers}
        for name in observed.attributes:
            layer, _, key = name.rpartition(".")
            changed[layer].append(key)
        own = [name for name, each in layers.items() if _is_own(each) or changed[name]]
        self._attributes = [
            (layers[name], *self._as_built(layers[name], changed[name])) for name in own
        ]
        # Switching the mode may count, too: each task begins in the same one.
        self._modes = list(layers.values()) if observed.attributes else []
        self._training = [each.training for each in self._modes]
        parameters = [*module.parameters()] if own else []
        self._trained = [(each, each.requires_grad) for each in parameters]

    def put_back(self) -> None:
        """Make all of it what it was when the network was built."""
        for layer, key, tensor, value in self._tensors:
            rebind(layer, key, tensor)
            tensor.copy_(value)
        for parameter, trained in self._trained:
            parameter.requires_grad_(trained)
        for layer, names, plain, changed in self._attributes:
            for key in vars(layer).keys() - names - OF_TORCH:
                del layer.__dict__[key]
            layer.__dict__.update(plain)
            for key, value in changed.items():
                layer.__dict__[key] = self._copied(value)
        for layer, mode in zip(self._modes, self._training, strict=True):
            layer.training = mode

    def _as_built(
        self, layer: nn.Module, changed: list[str]
    ) -> tuple[set[str], dict[str, Any], dict[str, Any]]:
        """Return the names of a layer's attributes, and values that are put back.

        Those are numbers and texts, which a later step than two may change, and copies
        of what two steps changed.
        """
        values = {key: it for key, it in vars(layer).items() if key not in OF_TORCH}
        plain = {key: it for key, it in values.items() if isinstance(it, PLAIN)}
        others = values.keys() & changed - plain.keys()
        return {*values}, plain, {key: self._copied(values[key]) for key in others}

    def _copied(self, value: Any) -> Any:
        """Return a copy of a value; what it has of the network stays what it is."""
        if torch.is_tensor(value) and value.grad_fn:
            # torch copies no tensor that an operation made: a normalised weight.
            return value.detach().clone()
        return deepcopy(value, {id(part): part for part in self._parts})


def rebind(layer: nn.Module, key: str, tensor: Tensor) -> None:
    """Give a layer its tensor again if it took another one by this name."""
    if getattr(layer, key) is not tensor:
        setattr(layer, key, tensor)
