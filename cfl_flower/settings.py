"""Settings, declared once and checked wherever they are built.

A group of settings is a frozen pydantic dataclass (`settings`) that carries the
behaviour it configures. The annotation of a field declares its type and bounds, the
string below it its meaning; checks, error lines and tables in docs/ come from there.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
import types
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from difflib import get_close_matches
from functools import wraps
from typing import (
    Annotated,
    Any,
    Literal,
    ParamSpec,
    TypeAlias,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from pydantic import (
    ConfigDict,
    Field,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
)
from pydantic.dataclasses import dataclass
from pydantic.fields import FieldInfo

from cfl_flower.environment.machine import total_memory
from cfl_flower.errors import ConfigError, printable

Count: TypeAlias = Annotated[int, Field(ge=1)]
"""A number of things, at least one."""

Natural: TypeAlias = Annotated[int, Field(ge=0)]
"""A number of things, or 0."""

Positive: TypeAlias = Annotated[float, Field(gt=0)]
"""A finite number above 0."""

Magnitude: TypeAlias = Annotated[float, Field(ge=1e-9, le=1e9)]
"""A positive number whose square and inverse are far from the ends of floats."""

NonNegative: TypeAlias = Annotated[float, Field(ge=0)]
"""A finite number of at least 0."""

Fraction: TypeAlias = Annotated[float, Field(ge=0, le=1)]
"""A probability or a share."""

T = TypeVar("T")
P = ParamSpec("P")

STRICTNESS = ConfigDict(
    extra="forbid",
    allow_inf_nan=False,
    arbitrary_types_allowed=True,
    coerce_numbers_to_str=True,
)
CHECKED = ConfigDict(strict=True, arbitrary_types_allowed=True, allow_inf_nan=False)


@dataclass_transform(frozen_default=True, field_specifiers=(field, Field))
def settings(group: str, frozen: bool = True) -> Callable[[type[T]], type[T]]:
    """Make a class a dataclass of settings that checks itself; a frozen one.

    One that inherits from a plain dataclass is ``frozen`` if that is. An object with a
    value out of its type or bounds raises a `ConfigError` in one line, in which
    ``group`` is the key of the settings in the configuration.

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
        made: Any = dataclass(frozen=frozen, config=STRICTNESS)(cls)
        validate = made.__init__

        @wraps(validate)
        def initialise(self: T, *args: Any, **values: Any) -> None:
            given = dict(zip(made.__pydantic_fields__, args, strict=False)) | values
            try:
                validate(self, *map(plain, args), **plain(values))
            except ValidationError as error:
                raise _first_problem(group, type(self), error) from error
            except PydanticUserError as error:
                raise ConfigError(
                    f"{group}: the annotations of {cls.__qualname__} cannot be read "
                    f"({error.message.splitlines()[0]}); name types that its module has"
                ) from error
            for name, value in given.items():
                if _is_turned(plain(value), getattr(self, name, None)):
                    allowed = allowed_values(made.__pydantic_fields__[name])
                    raise _refused(f"{group}.{name}".lstrip("."), value, allowed)

        made.__init__ = initialise
        return made

    return decorate


def checked(function: Callable[P, T], **stricter: Any) -> Callable[P, T]:
    """Check the arguments of a function by its annotations, or by ``stricter`` ones.

    One out of its type or bounds raises a `ConfigError` in one line.

    Examples
    --------
    >>> @checked
    ... def fine_tune(epochs: Count = 1) -> int:
    ...     return epochs
    >>> fine_tune(0)
    Traceback (most recent call last):
    cfl_flower.errors.ConfigError: epochs=0 is not allowed; use a whole number of at ...
    """

    @wraps(function)
    def call(*args: P.args, **values: P.kwargs) -> T:
        kinds = {**get_type_hints(function, include_extras=True), **stricter}
        bound = inspect.signature(function).bind(*args, **values)
        for name, value in bound.arguments.items():
            # Of *args and **options each has a kind of its own.
            many = "VAR" in bound.signature.parameters[name].kind.name
            kind = Any if many else kinds.get(name, Any)
            adapter: TypeAdapter[Any] = TypeAdapter(kind, config=CHECKED)
            try:
                adapter.validate_python(plain(value))
            except ValidationError as error:
                allowed = _describe(kind, []).replace("null", "None")
                fault = f"{name}={printable(str(value))} is not allowed"
                raise ConfigError(f"{fault}; use {allowed}") from error
        return function(*args, **values)

    return call


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
    return _refused(key, value, allowed)


def _refused(key: str, value: object, allowed: str) -> ConfigError:
    shown = json.dumps(value) if value is None or isinstance(value, bool) else value
    return ConfigError(f"{key}={shown} is not allowed; use {allowed}")


def _is_turned(given: object, made: object) -> bool:
    """Return whether pydantic took true or false, perhaps inside, for a number."""
    if isinstance(given, list | tuple) and isinstance(made, list | tuple):
        return any(map(_is_turned, given, made))
    if isinstance(given, dict) and isinstance(made, dict):
        return any(_is_turned(each, made.get(key)) for key, each in given.items())
    return isinstance(given, bool) and type(made) in (int, float)


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
    Any: "any value",
    dict: "a mapping, such as {name: value}",
    Callable: "a function",
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
    if origin in (list, tuple, Sequence):
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
    name = getattr(annotation, "__name__", str(annotation))
    return f"an {name}" if name[0] in "AEIOU" else f"a {name}"


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


def require_memory(field: str, value: object, needed: float) -> None:
    """Raise the one-line error of a size for which this machine has too little memory.

    ``needed`` is in bytes, at least: it is asked for before anything is allocated.
    """
    there = total_memory()
    takes = f"it takes {needed / 2**30:,.0f} GiB of memory at least"
    allowed = f"a smaller one: {takes}, and this machine has {there / 2**30:,.0f}"
    require(needed <= there, field, value, allowed)


ON_PYPI = {"mlflow": "mlflow-skinny"}
"""Names in the index of packages that are imported by another name."""


def require_package(
    package: str, field: str, value: str, other: str = "another"
) -> None:
    """Raise the one-line error of a setting whose package is not installed."""
    there = importlib.util.find_spec(package) is not None
    name = ON_PYPI.get(package, package.replace("_", "-"))
    allowed = f"{other}, or pip install {name} first"
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
