"""Settings, declared once and checked wherever they are built.

A group of settings is a frozen pydantic dataclass (`settings`) that carries the
behaviour it configures. The annotation of a field declares its type and bounds, the
string below it its meaning; checks, error lines and tables in docs/ come from there.
In messages a group is a plain mapping whose ``_target_`` names the class, so that a
device needs neither Hydra nor OmegaConf.
"""

from __future__ import annotations

import importlib.util
import json
import re
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, is_dataclass, replace
from difflib import get_close_matches
from functools import wraps
from inspect import get_annotations, isabstract
from typing import (
    Annotated,
    Any,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
)

import numpy as np
from pydantic import ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from cfl_flower.environment.memory import import_module
from cfl_flower.environment.moved import current_path
from cfl_flower.environment.plugins import ALLOWED, allowed_packages
from cfl_flower.errors import ConfigError

Count: TypeAlias = Annotated[int, Field(ge=1)]
"""A number of things, at least one."""

Natural: TypeAlias = Annotated[int, Field(ge=0)]
"""A number of things, or 0."""

Positive: TypeAlias = Annotated[float, Field(gt=0)]
"""A finite number above 0."""

NonNegative: TypeAlias = Annotated[float, Field(ge=0)]
"""A finite number of at least 0."""

Fraction: TypeAlias = Annotated[float, Field(ge=0, le=1)]
"""A probability or a share."""

ADAPTED = "cfl_flower.models.Adapted"
"""What may be set of every network beside its own settings."""

T = TypeVar("T")

STRICTNESS = ConfigDict(
    extra="forbid",
    allow_inf_nan=False,
    arbitrary_types_allowed=True,
    coerce_numbers_to_str=True,
)


@dataclass_transform(frozen_default=True, field_specifiers=(field, Field))
def settings(group: str) -> Callable[[type[T]], type[T]]:
    """Make a class a frozen dataclass of settings that checks itself.

    An object with a value out of its type or bounds raises a `ConfigError` in one line,
    in which ``group`` is the key of the settings in the configuration.

    Examples
    --------
    >>> @settings("strategy")
    ... class Example:
    ...     threshold: Annotated[float, Field(ge=0, lt=0.5)] = 0.25
    ...     metric: Literal["l1", "l2"] = "l1"
    >>> Example(threshold=1)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    cfl_flower.errors.ConfigError: strategy.threshold=1 is not allowed; use a number ...
    >>> Example(metric="l3")
    Traceback (most recent call last):
    cfl_flower.errors.ConfigError: strategy.metric=l3 is not allowed; use l1 or l2
    """

    def decorate(cls: type[T]) -> type[T]:
        _refuse_bare(group, cls)
        made: Any = dataclass(frozen=True, config=STRICTNESS)(cls)
        validate = made.__init__

        @wraps(validate)
        def initialise(self: T, *args: Any, **values: Any) -> None:
            try:
                validate(self, *map(plain, args), **plain(values))
            except ValidationError as error:
                raise _first_problem(group, type(self), error) from error

        made.__init__ = initialise
        return made  # type: ignore[no-any-return]

    return decorate


def _refuse_bare(group: str, cls: type) -> None:
    """Refuse a value without an annotation, which nobody would take for a setting."""
    settings = getattr(cls, "__pydantic_fields__", {})
    declared = {name for base in cls.__mro__[1:] for name in get_annotations(base)}
    known = get_annotations(cls).keys() | (declared - {*settings})
    for name, value in vars(cls).items():
        hidden = name in known or name.startswith("_") or name.isupper()
        if not (hidden or callable(value) or hasattr(value, "__get__")):
            kind = type(value).__name__
            allowed = f"{name}: {kind} = ..., or ClassVar[{kind}] for no setting"
            require(False, f"{group}: {cls.__name__}.{name}", value, allowed)


def _first_problem(group: str, cls: Any, error: ValidationError) -> ConfigError:
    """Return the one-line error of the first value that is not allowed."""
    problem = error.errors(include_url=False)[0]
    if not problem["loc"]:
        return ConfigError(f"{group}: {problem['msg']}")
    name = str(problem["loc"][0])
    key = f"{group}.{name}".lstrip(".")
    known = cls.__pydantic_fields__
    if name not in known:
        return ConfigError(f"{key} is not a setting; {known_names(name, known)}")
    if problem["type"] == "missing":
        return ConfigError(f"{key} is missing; set it to {allowed_values(known[name])}")
    value = problem["input"]
    allowed = allowed_values(known[name])
    if problem["type"] == "finite_number":
        allowed = allowed.replace("a number", "a finite number")
    shown = json.dumps(value) if value is None or isinstance(value, bool) else value
    return ConfigError(f"{key}={shown} is not allowed; use {allowed}")


def plain(value: Any) -> Any:
    """Return numpy's numbers and arrays as Python's; anything else stays as it is.

    A float32 becomes the number with its shortest digits.

    Examples
    --------
    >>> plain([np.int64(3), np.float32(0.1), np.array([1, 2]), "a", True])
    [3, 0.1, [1, 2], 'a', True]
    """
    if type(value) in (list, tuple):
        return type(value)(map(plain, value))
    if type(value) is dict:
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value[()] if value.ndim == 0 else list(value))
    if isinstance(value, np.floating):
        return float(str(value))
    return value.item() if isinstance(value, np.generic) else value


def known_names(name: str, known: Collection[str]) -> str:
    """Return the names that are known, with the nearest to a misspelt one.

    Examples
    --------
    >>> known_names("treshold", ["distance", "threshold"])
    'did you mean threshold? known here: distance, threshold'
    >>> known_names("lr", ["learning_rate", "momentum"])
    'did you mean learning_rate? known here: learning_rate, momentum'
    """
    initials = ["".join(word[0] for word in each.split("_") if word) for each in known]
    short = [
        each for each, letters in zip(known, initials, strict=True) if letters == name
    ]
    close = get_close_matches(name, known, 1) or short
    hint = f"did you mean {close[0]}? " if close else ""
    return f"{hint}known here: {', '.join(known) or 'none'}"


def allowed_values(declared: FieldInfo) -> str:
    """Describe the values that a setting may have.

    Examples
    --------
    >>> @settings("faults")
    ... class Example:
    ...     share: Fraction = 0.0
    ...     tries: Count | None = None
    ...     rounds: list[Count] = field(default_factory=list)
    ...     groups: list[list[int]] = field(default_factory=list)
    >>> for each in Example.__pydantic_fields__.values():
    ...     print(allowed_values(each))
    a number from 0 to 1
    null or a whole number of at least 1
    a list of whole numbers of at least 1
    a list of lists of whole numbers
    """
    return _describe(declared.annotation, declared.metadata)


NOUNS = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    dict: "a mapping, such as {name: value}",
}


def _describe(annotation: Any, metadata: list[Any]) -> str:
    origin = get_origin(annotation)
    parts = get_args(annotation)
    if origin is Annotated:
        inner = FieldInfo.from_annotation(annotation)
        return _describe(inner.annotation, inner.metadata)
    if origin is Literal:
        return " or ".join(map(str, parts))
    if origin in (Union, types.UnionType):
        given = [_describe(part, metadata) for part in parts if part is not type(None)]
        return " or ".join([*(["null"] if len(given) < len(parts) else []), *given])
    if origin in (list, tuple):
        item = _describe(parts[0], [])
        if any(getattr(each, "min_length", 0) for each in metadata):
            return f"a list of at least one {item.removeprefix('a ')}"
        plural = r"^(?:a )?(list|whole number|number|text)\b"
        return "a list of " + re.sub(plural, r"\1s", item)
    noun = NOUNS.get(origin or annotation) or _noun_of_class(annotation)
    return " ".join([noun, *_bounds(metadata)])


def _noun_of_class(annotation: Any) -> str:
    """Name a class of settings by them, any other class by itself."""
    if fields := getattr(annotation, "__pydantic_fields__", None):
        return f"a mapping with {', '.join(fields)}"
    return f"a {getattr(annotation, '__name__', annotation)}"


def _bounds(metadata: list[Any]) -> list[str]:
    names = {"ge": "of at least", "gt": "above", "le": "of at most", "lt": "below"}
    limits = {n: getattr(m, n) for m in metadata for n in names if hasattr(m, n)}
    if "ge" in limits and len(limits) > 1:
        high = limits["le"] if "le" in limits else f"below {limits['lt']}"
        return [f"from {limits['ge']} to {high}"]
    words = " and ".join(f"{names[name]} {limit}" for name, limit in limits.items())
    return [words.replace("and of at", "and at")] if limits else []


def show_value(value: object, digits: int = 10) -> str:
    """Write a value as the configuration does.

    Examples
    --------
    >>> show_value(None), show_value(True), show_value(1 / 3, digits=4)
    ('null', 'true', '0.3333')
    """
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def locate(path: str, key: str = "_target_") -> Any:
    """Import the object behind a dotted path, the value of a key.

    Raises `ConfigError` if the path is outside of the packages that whoever runs this
    process allows, or cannot be imported.
    """
    module, _, name = current_path(str(path)).rpartition(".")
    package = module.partition(".")[0]
    known = allowed_packages()
    if package not in known:
        # The remedy stands first: of a device's error, Flower's server keeps the start.
        raise ConfigError(
            f"{key}: {path!r} is not allowed; set {ALLOWED}="
            f"{package or 'its package'} where this runs, or install a package with an "
            f"entry point; it is outside of {', '.join(known)}"
        )
    try:
        found = import_module(module)
    except ConfigError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ConfigError(
            f"{key}: {path!r} cannot be imported ({reason}); correct the path, "
            "install its package, or fix the module"
        ) from error
    if not hasattr(found, name):
        place = getattr(found, "__file__", None) or "a part of Python"
        raise ConfigError(
            f"{key}: {path!r} cannot be imported: {module} is {place}, which has no "
            f"{name}; correct the path, or rename your module if it is another one"
        )
    return getattr(found, name)


def settings_class(path: str) -> Any:
    """Return the settings dataclass behind a ``_target_``.

    The target is the dataclass itself, or a strategy, whose ``Settings`` it is. Raises
    `ConfigError` if it is anything else.
    """
    target = locate(path)
    settings = getattr(target, "Settings", target)
    if not (isinstance(settings, type) and is_dataclass(settings)):
        fault = "has no settings"
    elif isabstract(settings):
        fault = "is only a base of settings"
    else:
        return settings
    raise ConfigError(
        f"_target_: {path!r} {fault}; name a class with the decorator "
        "cfl_flower.settings.settings (of a network, one whose build(shape, classes) "
        "returns it), or a strategy"
    )


def build(node: Any, place: str = "") -> Any:
    """Build settings from plain data; mappings with a ``_target_`` become objects.

    Errors name the key below ``place``, where the data stand in the configuration.
    """
    if not isinstance(node, Mapping):
        return node
    if "_target_" not in node:
        return {key: build(value, f"{place}.{key}") for key, value in node.items()}
    cls = settings_class(node["_target_"])
    around = {key: node[key] for key in _of_every_network(cls) if key in node}
    hidden = ("_target_", "name", *around)
    values = {key: value for key, value in node.items() if key not in hidden}
    inner = {key: value for key, value in values.items() if isinstance(value, Mapping)}
    place = place.lstrip(".")
    with located(place):
        # Before the inner ones, which may refer to it: errors name the key as set.
        built = cls(**{key: values[key] for key in values if key not in inner})
    if inner:
        parts = {key: build(value, f"{place}.{key}") for key, value in inner.items()}
        with located(place):
            built = replace(built, **parts)
    if around:
        adapted = build({"_target_": ADAPTED, **around}, place)
        return built if adapted == type(adapted)() else replace(adapted, network=built)
    return built


def _of_every_network(cls: Any) -> dict[str, FieldInfo]:
    """Return the settings of `ADAPTED`, if a class is that of a network without them.

    One that declares a setting of such a name has its own instead.
    """
    if not hasattr(cls, "build"):
        return {}
    own = {"network", *cls.__pydantic_fields__}
    fields = locate(ADAPTED).__pydantic_fields__
    return {name: fields[name] for name in fields if name not in own}


def _values_of(built: Any) -> Mapping[str, Any]:
    """Return the settings that were built, of a network with those of `ADAPTED`."""
    if _of_every_network(type(built)):
        return {**vars(locate(ADAPTED)()), **vars(built)}
    inner = getattr(built, "network", None)
    return {**vars(inner), **vars(built)} if is_dataclass(inner) else vars(built)


def declared(node: Any, built: Any) -> Any:
    """Return plain settings with the values that their declarations made of them.

    100.0 and "100" are 100 where a whole number is meant.

    Examples
    --------
    >>> declared({"rounds": 100.0, "names": ["3", 4]}, {"rounds": 100, "names": (3, 4)})
    {'rounds': 100, 'names': [3, 4]}
    """
    if isinstance(node, Mapping):
        values = built if isinstance(built, Mapping) else _values_of(built)
        return {key: declared(node[key], values.get(key, node[key])) for key in node}
    if isinstance(node, list | tuple):
        return [declared(*pair) for pair in zip(node, built, strict=True)]
    return built


def with_defaults(node: Any, base: object = None) -> Any:
    """Return plain settings with the defaults of their class, and of those inside.

    What ``base`` holds, the default of the setting above, comes before the defaults of
    its class. Settings of a class that may not be imported stay as they are.

    Examples
    --------
    >>> with_defaults({"_target_": "cfl_flower.models.Recurrent", "cell": "lstm"})
    ... # doctest: +ELLIPSIS
    {'_target_': 'cfl_flower.models.Recurrent', 'cell': 'lstm', 'weights': None, ...}
    >>> system = {"_target_": "cfl_flower.config.system.System", "task_timeout": 5.0}
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
    # Of what is inherited, a class cannot use all.
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
        elif default is not PydanticUndefined:
            found[name] = list(default) if isinstance(default, tuple) else default
    return found | {key: node[key] for key in node if key not in found}


def require(condition: bool, field: str, value: object, allowed: str) -> None:
    """Raise the one-line error of a setting out of its range.

    Raises `ConfigError` if ``condition`` is false; names the field, its value and what
    is allowed.

    Examples
    --------
    >>> require(False, "rounds", 0, "an integer of at least 1")
    Traceback (most recent call last):
    cfl_flower.errors.ConfigError: rounds=0 is not allowed; use an integer of at least 1
    """
    if not condition:
        raise ConfigError(f"{field}={value} is not allowed; use {allowed}")


def require_package(package: str, field: str, value: str, extra: str) -> None:
    """Raise the one-line error of a setting whose package is not installed."""
    there = importlib.util.find_spec(package) is not None
    allowed = f"another, or pip install 'cfl-flower[{extra}]' first"
    require(there, field, value, allowed)


@contextmanager
def located(place: str) -> Iterator[None]:
    """Complete the key in errors of nested settings, which know only their group.

    Examples
    --------
    >>> with located("drift.steps.first"):
    ...     require(False, "drift.every", 0, "1")
    Traceback (most recent call last):
    cfl_flower.errors.ConfigError: drift.steps.first.every=0 is not allowed; use 1
    """
    try:
        yield
    except ConfigError as error:
        group = place.partition(".")[0]
        text = str(error)
        if not text.startswith(f"{group}.") or text.startswith(f"{place}."):
            raise
        raise ConfigError(place + text.removeprefix(group)) from error
