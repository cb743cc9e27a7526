"""From plain data to settings and back.

In files and messages a group of settings is a plain mapping whose ``_target_`` names
the class, so that a device needs neither Hydra nor OmegaConf.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import is_dataclass, replace
from inspect import isabstract, isfunction
from typing import Any

from pydantic import TypeAdapter
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from cfl_flower.environment.machine import import_module
from cfl_flower.environment.plugins import ALLOWED, PACKAGES, allowed_packages
from cfl_flower.errors import ConfigError, refused
from cfl_flower.own_settings import settings_of
from cfl_flower.settings import located

MISSING = "???"
"""OmegaConf's mark of a setting without a default."""

ADAPTED = "cfl_flower.models.Adapted"
"""Class of the settings that every network has beside its own."""


def locate(path: str, key: str = "_target_") -> Any:
    """Import the object behind a dotted path, the value of a key.

    Raises `ConfigError` if the path is outside of the packages that whoever runs this
    process allows, or cannot be imported.
    """
    module, _, name = str(path).rpartition(".")
    package = module.partition(".")[0]
    known = allowed_packages()
    if package not in known:
        # The remedy stands first: of a device's error, Flower's server keeps the start.
        raise ConfigError(
            f"{key}: {path!r} is not allowed; set {ALLOWED}="
            f"{package or 'its package'} where this runs, or install a package with an "
            f"entry point; it is outside of {', '.join(known)}"
        )
    remedy = "correct the path, install its package, or fix the module"
    with refused(f"{key}: {path!r} cannot be imported", remedy):
        found = import_module(module)
    if not hasattr(found, name):
        place = getattr(found, "__file__", None) or "a part of Python"
        raise ConfigError(
            f"{key}: {path!r} cannot be imported: {module} is {place}, which has no "
            f"{name}; correct the path, or rename your module if it is another one"
        )
    return getattr(found, name)


def settings_class(path: str, place: str = "") -> Any:
    """Return the settings dataclass behind a ``_target_`` at a place.

    The target is the dataclass itself, or a strategy, whose ``Settings`` it is, or what
    makes a network. Raises `ConfigError` if it is anything else.
    """
    target = locate(path)
    if isfunction(target) and path.partition(".")[0] in PACKAGES:
        # None of these makes a network, and one may read or import what it is told.
        target = None
    group = place.lstrip(".").partition(".")[0]
    settings = settings_of(getattr(target, "Settings", target), group)
    if settings is None:
        fault = "has no settings"
    elif isabstract(settings):
        fault = "is only a base of settings"
    else:
        return settings
    raise ConfigError(
        f"_target_: {path!r} {fault}; name a dataclass (of a network, one whose "
        "build(shape, classes) returns it, or its torch.nn.Module), or a strategy"
    )


def build(node: Any, place: str = "") -> Any:
    """Build settings from plain data; mappings with a ``_target_`` become objects.

    Errors name the key below ``place``, where the data stand in the configuration.
    """
    if not isinstance(node, Mapping):
        return node
    place = place.lstrip(".")
    if "_target_" not in node:
        return {key: build(value, f"{place}.{key}") for key, value in node.items()}
    cls = settings_class(node["_target_"], place)
    hidden = ("_target_", "name")
    given = {k: v for k, v in node.items() if k not in hidden and v != MISSING}
    outer = _of_every_network(cls)
    try:
        values = {key: build(value, f"{place}.{key}") for key, value in given.items()}
    except ConfigError:
        # The mistake may be a value of this class, to which an inner one refers.
        own = {k: v for k, v in given.items() if k not in outer}
        with located(place), _failing(place, cls):
            cls(**{k: v for k, v in own.items() if not isinstance(v, Mapping)})
        raise
    around = {key: values.pop(key) for key in outer if key in values}
    with located(place), _failing(place, cls):
        built = cls(**values)
        if not around:
            return built
        adapted = locate(ADAPTED)(**around)
    return built if adapted == type(adapted)() else replace(adapted, network=built)


def _failing(place: str, cls: type) -> AbstractContextManager[None]:
    """Say in one line which part raises anything else than a `ConfigError`."""
    fault = f"{place}: {cls.__module__}.{cls.__qualname__} fails"
    return refused(fault, "correct its settings, or its __post_init__")


def _of_every_network(cls: Any) -> dict[str, FieldInfo]:
    """Return the settings of `ADAPTED`, if a class is that of a network without them.

    One that declares a setting of such a name has its own instead.
    """
    if not hasattr(cls, "build"):
        return {}
    own = {"network", *cls.__pydantic_fields__}
    fields = locate(ADAPTED).__pydantic_fields__
    return {name: fields[name] for name in fields if name not in own}


def declared(node: Any, built: Any) -> Any:
    """Return plain settings with the values that their declarations made of them.

    100.0 and "100" are 100 where a whole number is meant.

    Examples
    --------
    >>> declared({"rounds": 100.0, "names": ["3", 4]}, {"rounds": 100, "names": [3, 4]})
    {'rounds': 100, 'names': [3, 4]}
    """
    if not isinstance(node, Mapping):
        return built
    values = dump(built) if is_dataclass(built) else built
    return {key: declared(node[key], values.get(key, node[key])) for key in node}


def dump(built: Any) -> dict[str, Any]:
    """Return settings as plain data, of a network with those of `ADAPTED`."""
    if _of_every_network(type(built)):
        built = locate(ADAPTED)(network=built)
    adapter: TypeAdapter[Any] = TypeAdapter(type(built))
    values = adapter.dump_python(built, mode="json", serialize_as_any=True)
    return {**(values.pop("network", None) or {}), **values}


def with_defaults(node: Any, base: object = None) -> Any:
    """Return plain settings with the defaults of their class, and of those inside.

    What ``base`` holds, the default of the setting above, comes before the defaults of
    its class. Settings of a class that may not be imported stay as they are.

    Examples
    --------
    >>> with_defaults({"_target_": "cfl_flower.models.Recurrent", "cell": "lstm"})
    ... # doctest: +ELLIPSIS
    {'_target_': 'cfl_flower.models.Recurrent', 'cell': 'lstm', 'weights': None, ...}
    >>> system = {"_target_": "cfl_flower.run_config.System", "task_timeout": 5.0}
    >>> with_defaults(system)["evaluate_every"]
    1
    """
    if not isinstance(node, Mapping):
        return node
    target = node.get("_target_")
    if target is None and is_dataclass(base):
        target = f"{type(base).__module__}.{type(base).__qualname__}"
    try:
        cls = settings_class(target) if isinstance(target, str) else None
    except ConfigError:
        cls = None
    if cls is None:
        return {key: with_defaults(value) for key, value in node.items()}
    found = {"_target_": target}
    # A class cannot use all that it inherits.
    unused = getattr(cls, "unused", ())
    known = cls.__pydantic_fields__ | _of_every_network(cls)
    used = {k: v for k, v in known.items() if k not in unused}
    for name, declared in used.items():
        default = declared.get_default(call_default_factory=True)
        if type(base) is cls:
            default = getattr(base, name)
        if name in node:
            found[name] = with_defaults(node[name], default)
        elif is_dataclass(default):
            found[name] = with_defaults({}, default)
        elif default is PydanticUndefined:
            found[name] = MISSING
        else:
            found[name] = list(default) if isinstance(default, tuple) else default
    return found | {key: node[key] for key in node if key not in found}
