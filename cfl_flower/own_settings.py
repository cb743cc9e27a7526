"""Settings made of classes and functions that were not written as settings.

A plain dataclass is checked like one of this project. Of a network's class, or of a
function that returns a network, the keyword arguments are the settings, as Hydra's
users know it.
"""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import field, is_dataclass
from functools import cache, partial
from inspect import Parameter, isclass, isfunction, signature
from typing import Any, ClassVar

from cfl_flower.errors import ConfigError
from cfl_flower.settings import settings

OF_THE_DATA = ("shape", "classes", "num_classes")
"""Keyword arguments of a network that the dataset gives."""


BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
"""Kinds of arguments that a setting can give."""


@cache
def settings_of(target: Any, group: str) -> Any:
    """Return the settings class of what a ``_target_`` names, or None if it is none.

    ``group`` is that of the settings, empty where it is not known.
    """
    if isclass(target) and is_dataclass(target):
        return _checked(target, group)
    network = group in {"model", ""} and makes_network(target)
    return _of_arguments(target) if network else None


def _checked(cls: Any, group: str) -> Any:
    """Return a dataclass of settings, or a plain one made to check itself."""
    if hasattr(cls, "__pydantic_fields__"):
        return cls
    body = {"__module__": cls.__module__, "__doc__": cls.__doc__}
    frozen = cls.__dataclass_params__.frozen
    return settings(group, frozen=frozen)(type(cls.__name__, (cls,), body))


def makes_network(target: Any) -> bool:
    """Return whether a target is a function or the class of a network."""
    # Without importing torch, which takes seconds and may not be needed.
    bases = target.__mro__ if isclass(target) else ()
    return isfunction(target) or any(b.__module__.startswith("torch.nn") for b in bases)


class Called:
    """Settings whose network is what a class or a function makes of them."""

    target: ClassVar[Any]

    def build(self, shape: tuple[int, ...], classes: int) -> Any:
        """Build the network, given what it asks for of the dataset."""
        known = dict(zip(OF_THE_DATA, (tuple(shape), classes, classes), strict=True))
        asked = signature(self.target).parameters
        given = {name: value for name, value in known.items() if name in asked}
        network = self.target(**given, **vars(self))
        if not hasattr(network, "named_parameters"):
            raise ConfigError(
                f"model._target_: {type(self).__name__} returns a "
                f"{type(network).__name__}; it must return a torch.nn.Module"
            )
        return network


def _of_arguments(target: Any) -> Any:
    """Return settings whose fields are the keyword arguments of a network's target."""
    required: list[str] = []
    optional: dict[str, Any] = {}
    for name, parameter in signature(target).parameters.items():
        default = parameter.default
        if name in OF_THE_DATA or parameter.kind not in BY_NAME:
            continue
        if default is Parameter.empty:
            required.append(name)
        elif _is_plain(default):
            optional[name] = field(default_factory=partial(deepcopy, default))
    body = {
        "__module__": target.__module__,
        "__doc__": target.__doc__,
        "__annotations__": dict.fromkeys([*required, *optional], Any),
        "target": staticmethod(target),
    }
    return settings("model")(type(target.__name__, (Called,), body | optional))


def _is_plain(value: Any) -> bool:
    """Return whether a value can stand in a configuration."""
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True
