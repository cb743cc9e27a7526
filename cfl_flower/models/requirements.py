"""What a network must be, checked before a run: two steps of training tell most."""

from __future__ import annotations

import random
from contextlib import AbstractContextManager, suppress
from itertools import combinations
from operator import call
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cfl_flower.errors import ConfigError, refused
from cfl_flower.models import convolutional, networks, torchvision_networks
from cfl_flower.models.flat import FlatModel, trainable
from cfl_flower.models.network import (
    ModelSettings,
    Network,
    build_model,
    build_network,
)
from cfl_flower.models.outside import has_hooks, outside
from cfl_flower.models.own_state import (
    attributes,
    example_batch,
    needs_observing,
    same,
    train_twice,
    written,
)
from cfl_flower.seeding import one_torch_thread
from cfl_flower.types import Vector

OURS = (convolutional, networks, torchvision_networks)
"""Modules of networks that are known to need no trial."""


def check_network(
    settings: ModelSettings, shape: tuple[int, ...], classes: int
) -> FlatModel:
    """Return a network, or raise `ConfigError` for one that cannot be trained.

    It must give ``classes`` numbers for each input and have something to train. Every
    task must find it as it was built: two steps of training tell of any network but
    this project's own.

    Parameters
    ----------
    settings, shape, classes
        Those of `build_network`.

    Returns
    -------
    FlatModel
        A network of these settings, of use for its layers and lengths alone.

    Raises
    ------
    ConfigError
        With the one fault that was found first, and what to do about it.
    """
    x = example_batch(shape)
    with (
        _refusing(settings, shape),
        torch.random.fork_rng(devices=[]),
        one_torch_thread(),
    ):
        # Not a hollow one: what torch maps to other operations there imports its
        # compiler.
        network, other = (build_network(settings, shape, classes, 0) for _ in range(2))
        _require_alike(network, other)
        drawn = _pass(network, x, classes)
        model = build_model(settings, shape, classes, 0)
        _require_float32(network, model)
        own = getattr(settings, "network", None) or settings
        if type(own).__module__ in {each.__name__ for each in OURS}:
            return model
        equal = torch.equal(drawn, _pass(other, x, classes))
        name = type(network).__name__
        fault = f"the first network {name} of a process draws something that later ones"
        fault += " find, so that each worker would have its own"
        remedy = "draw it with torch, in each network, into a buffer or parameter"
        _require(equal, fault, remedy)
        _require_equal_steps(model, x)
        _require_equal_twins(model, build_model(settings, shape, classes, 0), x)
        _require_any_batch(model, x, classes)
        version = x._version
        with torch.no_grad():
            one, again = (model.module.eval()(x) for _ in range(2))
        # All models of a test see the same inputs, in whatever place they are.
        equal = same(one, again) and x._version == version
        fault = f"{name} gives different outputs for the same inputs in evaluation mode"
        _require(equal, fault, "draw, remember or change the inputs in training alone")
        _require_apart(model, x)
    return model


def require_divided(model: FlatModel, shape: tuple[int, ...]) -> None:
    """Require that a network is its classifier on top of its extractor, if it has any.

    A method that trains these by themselves trains nothing else. Raises `ConfigError`.
    """
    network: Any = model.module
    if not (hasattr(network, "extractor") and hasattr(network, "classifier")):
        return
    start = model.to_vector()
    fault = f"{type(network).__name__} is more than classifier(extractor(x))"
    rest = "put the rest into its extractor, which must be a torch.nn.Module"
    remedy = f"the strategy takes it apart: {rest}"
    for training in (False, True):
        found = []
        # The network's own pass, with its hooks, and that of its two parts.
        for forward in (call, Network.forward):
            # What is no layer, or takes other inputs, raises anything.
            trial = refused(f"model: {fault}", remedy)
            with trial, torch.no_grad(), torch.random.fork_rng([]):
                torch.manual_seed(0)
                network = model.load(start).module.train(training)
                found.append(forward(network, example_batch(shape)))
        _require(torch.allclose(found[0], found[1]), fault, remedy)


def require_plain_classifier(model: FlatModel) -> None:
    """Require that a classifier computes W z + b, as it is trained and tested alone.

    Raises `ConfigError`.
    """
    network: Any = model.module
    classifier = getattr(network, "classifier", None)
    # Of a network without one the strategy says so itself.
    plain = type(classifier) is nn.Linear and not has_hooks(classifier)
    plain |= not isinstance(classifier, nn.Module)
    fault = f"the classifier of {type(network).__name__} may be more than W z + b"
    remedy = "the strategy trains it by itself: use torch.nn.Linear, without hooks"
    _require(plain, fault, remedy)


def require_extractor_first(model: FlatModel, shape: tuple[int, ...]) -> None:
    """Require that an extractor, if a network has any, is given the inputs themselves.

    A method takes features from it alone. Raises `ConfigError`.
    """
    network: Any = model.module.eval()
    if not hasattr(network, "extractor"):
        return
    x = example_batch(shape)
    given: list[Any] = []
    fault = f"{type(network).__name__} does more than give inputs to its extractor"
    rest = "put the rest into it, a torch.nn.Module that returns a tensor"
    remedy = f"the strategy takes features from that alone: {rest}"
    with refused(f"model: {fault}", remedy), torch.no_grad():
        note = network.extractor.register_forward_pre_hook(
            lambda _, own: given.extend(own)
        )
        network(x)
        note.remove()
        features = network.extractor(x)
    if not given:
        # Its pass may be the same in another form.
        require_divided(model, shape)
        return
    ok = len(given) == 1 and torch.equal(given[0], x) and torch.is_tensor(features)
    _require(ok, fault, remedy)


def _require_any_batch(model: FlatModel, x: Tensor, classes: int) -> None:
    """Require that a network can be tested on three inputs, and on one."""
    test = model.module.eval()
    alone = (1, classes)
    with torch.no_grad():
        test(x[[0, 1, 1]])
        # BatchNorm without running statistics takes no single one.
        with suppress(ValueError):
            alone = tuple(test(x[:1]).shape)
    fault = f"{type(test).__name__} returns {alone} for 1 input in evaluation, not "
    needed = (1, classes)
    _require(alone == needed, f"{fault}{needed}", "squeeze no dimension of the batch")


def _require_apart(model: FlatModel, x: Tensor) -> None:
    """Require that a copy of a network uses no weights of the network itself."""
    start = model.to_vector()
    copies = [model.clone().module for _ in range(2)]
    fillings = (start, np.full_like(start, np.nan))
    found = []
    with torch.no_grad():
        for copied, filling in zip(copies, fillings, strict=True):
            model.load(filling)
            torch.manual_seed(0)
            found.append(torch.cat([copied.train(mode)(x) for mode in (True, False)]))
        model.load(start)
    fault = f"{type(model.module).__name__} has a function that holds its own weights"
    fault += " or layers, as a lambda or a hook does, and copies of the network would"
    fault += " use those of the first"
    _require(same(*found), fault, "make it a method, or a layer")


def odd_outputs(model: FlatModel, shape: tuple[int, ...]) -> tuple[bool, bool]:
    """Return whether outputs in tests depend on other samples, or are probabilities."""
    x = example_batch(shape)
    test = model.module.eval()
    with torch.no_grad(), torch.random.fork_rng(devices=[]), one_torch_thread():
        both = test(x)
        # Each beside one of its kind, and the two behind others.
        apart = [test(x[[0, 0]])[:1], test(x[[1, 1]])[1:], test(x[[1, 1, 0, 1]])[2:]]
    # Sums of other sizes round otherwise.
    near = 0.001 * float(both.nan_to_num().abs().max())
    mixed = not torch.allclose(torch.cat(apart), both.repeat(2, 1), 0, near, True)
    sums = both.sum(1)
    return mixed, bool((both >= 0).all()) and torch.allclose(sums, sums.new_ones(2))


def lacks_statistics(model: FlatModel, shape: tuple[int, ...]) -> bool:
    """Return whether tests lack something that training changes; change the network.

    That is: its outputs in evaluation mode are others after two steps of training than
    after a load of the same vector, as before a test.
    """
    if not needs_observing(model.module):
        return False
    x = example_batch(shape)
    with torch.random.fork_rng(devices=[]), one_torch_thread():
        train_twice(model.module, x)
        with torch.no_grad():
            trained = model.module.eval()(x)
            model.load(model.to_vector())
            tested = model.module.eval()(x)
    return not same(trained, tested)


def _refusing(
    settings: ModelSettings, shape: tuple[int, ...]
) -> AbstractContextManager[None]:
    """Say in one line that a network fails, whatever it raises."""
    own = type(getattr(settings, "network", None) or settings).__name__
    return refused(
        f"model: the network of {own} fails on inputs of shape {shape}",
        "take a smaller one, or fix its build(shape, classes) or its forward",
    )


def _require(holds: bool, fault: str, remedy: str) -> None:
    if not holds:
        raise ConfigError(f"model: {fault}; {remedy}")


def _pass(network: nn.Module, x: Tensor, classes: int) -> Tensor:
    """Pass two inputs through a network, and return torch's generator after it."""
    torch.manual_seed(0)
    with torch.no_grad():
        _require_outputs(network, network.eval()(x), classes, "")
    fault = f"{type(network).__name__} has no trainable parameters"
    remedy = "leave requires_grad true for some of them"
    _require(bool(trainable(network)), fault, remedy)
    _require_outputs(network, network.train()(x), classes, " in training")
    return torch.get_rng_state()


def _require_outputs(network: nn.Module, found: Any, classes: int, when: str) -> None:
    shape = tuple(getattr(found, "shape", ()))
    given = shape if torch.is_tensor(found) else f"a {type(found).__name__}"
    fault = f"{type(network).__name__} returns {given} for 2 inputs{when}"
    needed = (2, classes)
    remedy = f"it must return {needed}, a number for each of the dataset's classes"
    _require(shape == needed, fault, remedy)


def _require_alike(one: nn.Module, other: nn.Module) -> None:
    """Require that two networks of a seed are equal, and have nothing in common."""
    name = type(other).__name__
    pairs = list(zip(one.parameters(), other.parameters(), strict=True))
    apart = all(a is not b for a, b in pairs)
    remedy = "its build(shape, classes) must make new ones at every call"
    _require(apart, f"two networks {name} share parameters", remedy)
    equal = all(same(a, b) for a, b in pairs)
    fault = f"two networks {name} of the same seed begin with other weights"
    _require(equal, fault, "draw them with torch")
    fault = f"{name} has a parameter in one memory with another one, a buffer or a"
    fault += " tensor in an attribute"
    _require(not _shares_memory(other), fault, "share the parameter, not its data")


def _shares_memory(module: nn.Module) -> bool:
    """Return whether a parameter has memory in common with another tensor of a network.

    Flattening moves parameters, and what was a part of one stays where it is.
    """
    beside = [each for _, some in attributes(module).values() for each in some]
    marked: list[tuple[Tensor, bool]] = [(each, True) for each in module.parameters()]
    marked += [(each, False) for each in (*module.buffers(), *beside)]
    spans = [
        (each.data_ptr(), each.data_ptr() + each.nbytes, own)
        for each, own in marked
        if each.numel() and each.layout == torch.strided
    ]
    pairs = combinations(spans, 2)
    return any((p or q) and a < d and c < b for (a, b, p), (c, d, q) in pairs)


def _require_float32(network: nn.Module, model: FlatModel) -> None:
    """Require finite float32 numbers of all that travels."""
    before = {**dict(network.named_parameters()), **dict(network.named_buffers())}
    for name, tensor in model.travelling().items():
        kind = before[name].dtype
        ok = torch.float32 in (kind, model.vector.dtype)
        remedy = (
            "make it float32, such as by .float(), as models are averaged as float32"
        )
        _require(ok, f"{name} holds {kind} numbers", remedy)
        fault = (
            f"{name} holds numbers that are not finite, and is averaged over clients"
        )
        remedy = "start from finite ones, or, for a buffer that need not be averaged, "
        remedy += "register it with persistent=False"
        _require(bool(tensor.isfinite().all()), fault, remedy)


def _train(model: FlatModel, start: Vector, x: Tensor) -> list[Tensor]:
    """Return the gradient of two steps, the weights after them, torch's generator."""
    model.load(start)
    model.gradient.zero_()
    torch.manual_seed(0)
    model.module.train()
    train_twice(model.module, x)
    trained = torch.from_numpy(model.to_vector())
    return [model.gradient.clone(), trained, torch.get_rng_state()]


def _require_equal_twins(model: FlatModel, twin: FlatModel, x: Tensor) -> None:
    """Require the same training of two networks of one seed."""
    start = twin.to_vector()
    pairs = zip(*(_train(each, start, x) for each in (model, twin)), strict=True)
    fault = f"two networks {type(model.module).__name__} of one seed train differently"
    fault += ", so that each worker would have its own"
    equal = all(same(*pair) for pair in pairs)
    _require(equal, fault, "draw with torch, or from a generator with a seed")


def _require_equal_steps(model: FlatModel, x: Tensor) -> None:
    """Require the same gradient and statistics of two tasks with one model."""
    start = model.to_vector()
    found = []
    drawn = []
    beside = []
    # Between the two, a task with other data.
    for inputs in (x, 1 - x / 2, x):
        before = written((random.getstate(), np.random.get_state()), {})
        found.append(_train(model, start, inputs))
        beside.append(outside(model.module))
        drawn.append(before != written((random.getstate(), np.random.get_state()), {}))
    name = type(model.module).__name__
    # A thread beside this one, such as one of Ray's, may draw during one of them.
    fault = f"{name} draws from Python's or NumPy's own generator, which no run seeds"
    _require(not all(drawn), fault, "draw with torch")
    lost = model.lost_parameters()
    fault = f"{name} puts another tensor in the place of {', '.join(lost[:3])}"
    remedy = "change its numbers in place, such as by data.copy_()"
    _require(not lost, f"{fault} while it is trained", remedy)
    equal = all(same(*pair) for pair in zip(found[0], found[2], strict=True))
    fault = f"{name} trained differently from the same model and seed, so that a"
    fault += " client's result would depend on the client before it"
    remedy = "keep what it remembers in buffers or attributes of its layers"
    _require(equal, fault, f"{remedy}, and draw with torch")
    # State that the first task fills for good, such as a table, is no trace of a
    # client.
    first, _, last = beside
    changed = [key for key in last if first.get(key) != last[key]]
    fault = f"{name} changes {', '.join(changed)}, outside of the network, while it is"
    fault += " trained, which would pass from client to client"
    _require(not changed, fault, "keep it in buffers or attributes of its layers")
