"""Every numeric setting takes numbers of any kind, and is saved as its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

from cfl_flower.building import build, declared
from cfl_flower.config.compose import _in_rounds
from cfl_flower.config.composition import compose_plain
from cfl_flower.config.options import GROUPS, list_options
from cfl_flower.config.overrides import parse
from cfl_flower.run_config import Basics
from simulations.api import to_overrides

FORMS: dict[str, Callable[[Any], Any]] = {
    "int64": lambda n: np.int64(n) if float(n).is_integer() else np.float64(n),
    "int32": lambda n: np.int32(n) if float(n).is_integer() else np.float64(n),
    "float32": np.float32,
    "float64": np.float64,
    "array": np.array,
    "float": float,
}

LARGEST = 2**24
"""Above it, not every whole number is a float32."""


def is_number(value: object) -> bool:
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return known and abs(value) <= LARGEST  # type: ignore[operator]


def in_form(form: Callable[[Any], Any], value: Any) -> Any:
    return [form(each) for each in value] if isinstance(value, list) else form(value)


def numbers(node: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[Any]:
    """Yield the path and the value of each number of a group, or list of numbers."""
    for key, value in node.items():
        if isinstance(value, dict):
            yield from numbers(value, (*path, key))
        elif is_number(value) or (
            isinstance(value, list) and all(map(is_number, value))
        ):
            yield (*path, key), value


def place(node: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value


def check(node: dict[str, Any]) -> None:
    """Give a group its own numbers in each form: by Python, by the shell and alone."""
    node = declared(node, build(node))
    own = dict(numbers(node))
    for name, form in FORMS.items():
        formed = {path: in_form(form, value) for path, value in own.items()}
        keys = {".".join(("x", *path)): value for path, value in formed.items()}
        read = [each.value() for each in parse(to_overrides(keys))] if keys else []
        for given in (read, formed.values()):
            changed = deepcopy(node)
            for path, value in zip(own, given, strict=True):
                place(changed, path, value)
            found = dict(numbers(declared(changed, build(changed))))
            for path, value in own.items():
                # A float32 has seven digits, which some defaults exceed.
                assert found[path] == pytest.approx(value, rel=1e-6), (name, path)
                kinds = json.dumps(found[path]), json.dumps(value)
                assert ("." in kinds[0]) == ("." in kinds[1]), (name, path, kinds)


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_every_number_of_a_group(group: str) -> None:
    for option in list_options(group):
        node = compose_plain([f"{group}={option}"]).settings[group]
        if node.get("path") == "":
            node["path"] = "name"  # that of a dataset on the hub must be given
        if group == "drift":
            node = _in_rounds(node, 100)
        check(node)


def test_every_number_of_a_run() -> None:
    plain = compose_plain([]).settings
    node = {key: value for key, value in plain.items() if key not in GROUPS}
    path = f"{Basics.__module__}.{Basics.__qualname__}"
    check({"_target_": path, **node})
