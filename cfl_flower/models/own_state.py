"""What a network keeps from one call to the next beside its flat vector.

One network serves all clients of a worker. Counters, caches and buffers that are not
saved would take traces of one client's data to the next, and make results depend on who
came before. They are put back, before each task, to what they were when the network was
built.
"""

from __future__ import annotations

import pickle
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.modules.batchnorm import _NormBase

STATELESS = {"cfl_flower", "torch", "torchvision"}
"""Packages whose layers keep nothing but buffers."""

OF_TORCH = vars(nn.Module()).keys() | {"grad"}
"""Attributes that every module has, for torch's own use."""

Place = tuple[str, str]
"""The name of a layer, and the name of an attribute of it."""


@dataclass(frozen=True)
class Observed:
    """What two steps of training changed in a network, beside what is trained."""

    statistics: frozenset[str]
    """Names of buffers that travel: saved, of floats, and changed by training."""
    attributes: tuple[Place, ...] = ()
    """Other attributes of its layers that are not what they were."""
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
    packages = {type(layer).__module__.partition(".")[0] for _, layer in layers}
    return not (floats <= norms and packages <= STATELESS)


def example_batch(shape: tuple[int, ...]) -> Tensor:
    """Return two inputs that every dataset might have: of zeros, and of ones."""
    return torch.stack([torch.zeros(shape), torch.ones(shape)])


def observe(module: nn.Module, shape: tuple[int, ...]) -> Observed:
    """Train a network, which is of no use afterwards, for two steps; tell what changed.

    A network that cannot be trained changes nothing; `check_network` says why.
    """
    floats = saved_floats(module)
    before = _tensors(module)
    texts = _attributes(module)
    x = example_batch(shape)
    y = torch.tensor([0, 1])
    module.train()
    with torch.enable_grad():
        for _ in range(2):
            cross_entropy(module(x), y).backward()  # type: ignore[no-untyped-call]
    after = _tensors(module)
    changed = {n for n, old in before.items() if not same(old, after.get(n))}
    # What grows is no statistic of a model.
    lasting = {n for n in floats if before[n].shape == after[n].shape}
    now = _attributes(module)
    places = [place for place in texts | now if texts.get(place) != now.get(place)]
    parameters = dict(module.named_parameters())
    frozen = {n for n, each in parameters.items() if not each.requires_grad}
    statistics = frozenset(lasting & changed)
    return Observed(statistics, tuple(places), frozenset(frozen & changed))


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


def _attributes(module: nn.Module) -> dict[Place, bytes | None]:
    """Return a text of each attribute of a network's layers that is its author's."""
    return {
        (name, key): _text(value)
        for name, layer in module.named_modules()
        for key, value in vars(layer).items()
        if key not in OF_TORCH
    }


def _text(value: Any) -> bytes | None:
    try:
        return pickle.dumps(value)
    except Exception:  # noqa: BLE001 - any; what has no text tells by what it does
        return None


class Missing:
    """The value of an attribute that a network as built does not have."""


class OwnState:
    """What a network keeps besides what travels, to be put back as it was built.

    Attributes
    ----------
    values : list of (str, str, Any)
        Layer, attribute and value of what is put back, from when the network was built.

    A copy of a network takes the values from the state that it is ``like``.
    """

    def __init__(
        self,
        module: nn.Module,
        observed: Observed,
        like: OwnState | None = None,
    ) -> None:
        layers = dict(module.named_modules())
        self.values: list[tuple[str, str, Any]]
        self.values = _as_built(module, observed) if like is None else like.values
        self._tensors: list[tuple[nn.Module, str, Tensor, Tensor]] = []
        self._attributes: list[tuple[nn.Module, str, Any]] = []
        for name, key, value in self.values:
            layer = layers[name]
            if key in layer._buffers or key in layer._parameters:
                self._tensors.append((layer, key, getattr(layer, key), value))
            else:
                self._attributes.append((layer, key, value))

    def put_back(self) -> None:
        """Make all of it what it was when the network was built."""
        for layer, key, tensor, value in self._tensors:
            rebind(layer, key, tensor)
            tensor.copy_(value)
        for layer, key, value in self._attributes:
            if value is Missing:
                layer.__dict__.pop(key, None)
            else:
                layer.__dict__[key] = deepcopy(value)


def rebind(layer: nn.Module, key: str, tensor: Tensor) -> None:
    """Give a layer its tensor again if it took another one by this name."""
    if getattr(layer, key) is not tensor:
        setattr(layer, key, tensor)


def _as_built(module: nn.Module, observed: Observed) -> list[tuple[str, str, Any]]:
    """Return what is to be put back: buffers that do not travel, and what changed."""
    tensors = dict(module.named_buffers()) | dict(module.named_parameters())
    buffers = {name for name, _ in module.named_buffers()}
    found: list[tuple[str, str, Any]] = []
    for name in sorted(buffers - observed.statistics | observed.frozen):
        layer, _, key = name.rpartition(".")
        found.append((layer, key, tensors[name].detach().clone()))
    layers = dict(module.named_modules())
    for layer, key in observed.attributes:
        value = vars(layers[layer]).get(key, Missing)
        # torch copies no tensor that an operation made, such as a normalised weight.
        made = torch.is_tensor(value)
        found.append((layer, key, value.detach().clone() if made else deepcopy(value)))
    if observed.attributes:
        # Switching the mode may count, too: each task begins in the same one.
        found += [(name, "training", each.training) for name, each in layers.items()]
    return found
