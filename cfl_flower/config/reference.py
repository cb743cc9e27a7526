"""The settings of an option as its file has them, each with what is allowed.

For `--help` and the tables of the documentation, written from the declarations.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from cfl_flower.building import settings_class
from cfl_flower.config.composition import compose_plain
from cfl_flower.config.options import list_options
from cfl_flower.settings import allowed_values, show_value
from cfl_flower.types import Json


class Setting(NamedTuple):
    """One row of a table."""

    key: str
    default: str
    allowed: str
    meaning: str


def option_settings(group: str, option: str) -> list[Setting]:
    """Return the settings of an option of a group as its file has them.

    Of a group within it that has several options, those of all are listed.
    """
    return list(_walk([f"{group}={option}"], group))


def _walk(overrides: list[str], group: str) -> Iterator[Setting]:
    """Yield the settings of a group such as ``strategy/scan``, and of those within."""
    node, choices, _ = compose_plain(overrides)
    for part in group.split("/"):
        node = node[part]
    cls = settings_class(node["_target_"])
    prefix = "".join(f"{part}." for part in group.split("/")[1:])
    for name in cls.__pydantic_fields__:
        value = node[name]
        inner = f"{group}/{name}"
        if isinstance(value, Mapping) and len(list_options(inner)) > 1:
            row = setting_of(cls, name, choices[inner])
            yield row._replace(key=inner, allowed=" or ".join(list_options(inner)))
            yield from _walk_options(overrides, inner)
        elif nested := list(_nested(inner, value)):
            for each in nested:
                yield from _walk(overrides, each)
        elif name != "client":
            yield setting_of(cls, name, value, prefix)


def _nested(path: str, value: Json) -> Iterator[str]:
    """Yield the paths of the settings in a value: its own, or those of its parts."""
    if isinstance(value, Mapping) and "_target_" in value:
        yield path
    elif isinstance(value, Mapping):
        for name, part in value.items():
            yield from _nested(f"{path}/{name}", part)


def _walk_options(overrides: list[str], group: str) -> Iterator[Setting]:
    """Yield the settings of all options of a group, with the options that have them."""
    rows: dict[str, Setting] = {}
    options: dict[str, list[str]] = {}
    for option in list_options(group):
        for row in _walk([*overrides, f"{group}={option}"], group):
            rows.setdefault(row.key, row)
            options.setdefault(row.key, []).append(option)
    for key, row in rows.items():
        names = ", ".join(f"`{option}`" for option in options[key])
        yield row._replace(meaning=row.meaning and f"Of {names}: {row.meaning}")


def setting_of(cls: Any, name: str, value: Json, prefix: str = "") -> Setting:
    """Return the row of a setting of a class."""
    allowed = allowed_values(cls.__pydantic_fields__[name])
    meaning = attribute_docstrings(cls).get(name, "")
    return Setting(f"{prefix}{name}", show_value(value, 4), allowed, meaning)


def attribute_docstrings(cls: type) -> dict[str, str]:
    """Return the strings below the fields of a class and its bases, each as one line.

    Examples
    --------
    >>> from cfl_flower.clustering.algorithms import KMeansScan
    >>> attribute_docstrings(KMeansScan)["smallest"]
    'The smallest K that is tried.'
    """
    found: dict[str, str] = {}
    for each in reversed(cls.mro()[:-1]):
        (node,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        assert isinstance(node, ast.ClassDef)
        found |= dict(_strings_below(node.body))
    return found


def _strings_below(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for field, below in pairwise(body):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, " ".join(text.replace("``", "`").split())
