"""What a network does and keeps outside of its layers.

Hooks are more than the layers' classes say. What code keeps, nobody can put back: a
counter of a class, a module or a function passes from client to client of a worker, and
makes results depend on the number of workers. `check_network` refuses it, even if it
acts only in a later step than those that are tried.
"""

from __future__ import annotations

from inspect import getclosurevars
from types import FunctionType, ModuleType
from typing import Any

from torch import nn

from cfl_flower.models.own_state import STATELESS, own_layers, written

GENERATORS = {"random", "numpy"}
"""Packages with generators of their own, whose draws `check_network` refuses."""


def outside(module: nn.Module) -> dict[str, bytes | None]:
    """Return what the code of a network's layers keeps outside of them, as texts.

    That is: attributes of their classes, and variables of modules and functions that
    methods refer to, or functions which these call. None is what has no text.
    """
    found: dict[str, Any] = {}
    functions: list[FunctionType] = []
    kinds = {kind for it in own_layers(module) for kind in type(it).__mro__}
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
    return {name: written(value, {})[0] for name, value in kept.items()}


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
    modules = [it for it in named.globals.values() if isinstance(it, ModuleType)]
    for module in modules:
        if module.__name__.partition(".")[0] in {*STATELESS, *GENERATORS}:
            continue
        # Of a module, what the function names: `module.attribute`.
        names = [n for n in function.__code__.co_names if hasattr(module, n)]
        found |= {f"{module.__name__}.{n}": getattr(module, n) for n in names}
    return inner | found


def copy_hooks(module: nn.Module, copy: nn.Module) -> None:
    """Give the weights of a copy the hooks of a network's, which `deepcopy` leaves."""
    both: list[list[Any]] = [[*each.parameters()] for each in (module, copy)]
    for one, two in zip(*both, strict=True):
        if two.requires_grad:
            for hook in (one._backward_hooks or {}).values():
                two.register_hook(hook)
            for hook in (one._post_accumulate_grad_hooks or {}).values():
                two.register_post_accumulate_grad_hook(hook)


def has_hooks(module: nn.Module) -> bool:
    """Return whether more has a part in a pass than the layers' classes say.

    That is a hook of a layer or a weight, or a ``forward`` of a single layer.
    """
    for layer in module.modules():
        own = vars(layer)
        hooks = [n for n in own if n.endswith("hooks") and "state_dict" not in n]
        if "forward" in own or any(own[name] for name in hooks):
            return True
    weights: list[Any] = [*module.parameters()]
    return any(w._backward_hooks or w._post_accumulate_grad_hooks for w in weights)
