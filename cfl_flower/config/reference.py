"""The settings tables of the documentation, written from the declarations of settings.

    python -m cfl_flower.config.reference

rewrites each table between ``<!-- settings -->`` (a method's own settings) or
``<!-- settings: local -->`` (a group that many methods share) and
``<!-- end of settings -->``. A page stays as it is if one of its settings has no
docstring.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from cfl_flower.client.upload_policy import UploadPolicy
from cfl_flower.clustering.label_shift import ShiftTest
from cfl_flower.config.composition import compose_plain, list_options
from cfl_flower.environment.plugins import CONF
from cfl_flower.learning.training import LocalTraining
from cfl_flower.privacy.settings import CentralPrivacy
from cfl_flower.settings import allowed_values, settings_class, show_value
from cfl_flower.state import StrategySettings
from cfl_flower.types import Json

PAGES = CONF.parent / "docs" / "methods"

SHARED: dict[str, Any] = {
    "strategy": StrategySettings,
    "local": LocalTraining,
    "policy": UploadPolicy,
    "shift": ShiftTest,
}
"""Settings that many methods have, described once in the README."""

OTHERS: dict[str, Any] = {"privacy": CentralPrivacy}
"""Groups outside of methods, and the pages of other folders that describe them."""
OTHER_PAGES = (PAGES.parent / "how-to" / "privacy.md",)

TABLE = re.compile(
    r"(<!-- settings(?:: (\w+))? -->\n).*?(<!-- end of settings -->)", re.DOTALL
)
HEADER = "| setting | default | allowed | meaning |\n| --- | --- | --- | --- |\n"


class Setting(NamedTuple):
    """One row of a table."""

    key: str
    default: str
    allowed: str
    meaning: str


def method_settings(method: str) -> list[Setting]:
    """Return a method's own settings as configured in ``conf/strategy``.

    Those of every method, and of a shared group, are listed only if the method has
    another default. Of a group with several options, the settings of all are listed.
    """
    return option_settings("strategy", method, own=True)


def option_settings(group: str, option: str, own: bool = False) -> list[Setting]:
    """Return the settings of an option of a group as its file has them.

    Of a method's ``own`` are not those of every method with their common defaults.
    """
    return list(_walk([f"{group}={option}"], group, own))


def group_settings(group: str) -> list[Setting]:
    """Return the settings of a shared group with the defaults of its class."""
    cls = (SHARED | OTHERS)[group]
    prefix = "" if group == "strategy" else f"{group}."
    return [
        _setting(cls, name, value, prefix)
        for name, value in _defaults(cls).items()
        if name != "client" and name not in SHARED
    ]


def _walk(overrides: list[str], group: str, own: bool) -> Iterator[Setting]:
    """Yield the settings of a group such as ``strategy/scan``, and of those within."""
    node, choices, _ = compose_plain(overrides)
    for part in group.split("/"):
        node = node[part]
    cls = settings_class(node["_target_"])
    shared = [base for base in SHARED.values() if own and base in cls.mro()]
    common: dict[str, Json] = {}
    for base in shared:
        common |= _defaults(base)
    prefix = "".join(f"{part}." for part in group.split("/")[1:])
    for name in cls.__pydantic_fields__:
        value = node[name]
        inner = f"{group}/{name}"
        if isinstance(value, Mapping) and len(list_options(inner)) > 1:
            row = _setting(cls, name, choices[inner])
            yield row._replace(key=inner, allowed=" or ".join(list_options(inner)))
            yield from _walk_options(overrides, inner, own)
        elif nested := list(_nested(inner, value)):
            for each in nested:
                yield from _walk(overrides, each, own)
        elif name != "client" and (name not in common or common[name] != value):
            yield _setting(cls, name, value, prefix)


def _nested(path: str, value: Json) -> Iterator[str]:
    """Yield the paths of the settings in a value: its own, or those of its parts."""
    if isinstance(value, Mapping) and "_target_" in value:
        yield path
    elif isinstance(value, Mapping):
        for name, part in value.items():
            yield from _nested(f"{path}/{name}", part)


def _walk_options(overrides: list[str], group: str, own: bool) -> Iterator[Setting]:
    """Yield the settings of all options of a group, with the options that have them."""
    rows: dict[str, Setting] = {}
    options: dict[str, list[str]] = {}
    for option in list_options(group):
        for row in _walk([*overrides, f"{group}={option}"], group, own):
            rows.setdefault(row.key, row)
            options.setdefault(row.key, []).append(option)
    for key, row in rows.items():
        names = ", ".join(f"`{option}`" for option in options[key])
        yield row._replace(meaning=row.meaning and f"Of {names}: {row.meaning}")


def _setting(cls: Any, name: str, value: Json, prefix: str = "") -> Setting:
    allowed = allowed_values(cls.__pydantic_fields__[name])
    meaning = attribute_docstrings(cls).get(name, "")
    return Setting(f"{prefix}{name}", show_value(value, 4), allowed, meaning)


def _defaults(cls: Any) -> dict[str, Json]:
    known = cls.__pydantic_fields__
    return {name: known[name].get_default(call_default_factory=True) for name in known}


def attribute_docstrings(cls: type) -> dict[str, str]:
    """Return the strings below the fields of a class and its bases, each as one line.

    Examples
    --------
    >>> attribute_docstrings(ShiftTest)["threshold"]
    'Share of the samples whose change is a shift; 0.2 in eq. 9.'
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


def write_table(rows: Iterable[Setting]) -> str:
    """Write settings as a Markdown table, or a sentence if there are none."""
    lines = [[cell.replace("|", r"\|") for cell in row] for row in rows]
    if not lines:
        return (
            "Only the [settings of every method](README.md#settings-of-every-method).\n"
        )
    return HEADER + "".join(f"| `{key}` | {' | '.join(r)} |\n" for key, *r in lines)


def updated_page(path: Path) -> str:
    """Return a page with its tables as they should be."""

    def replaced(match: re.Match[str]) -> str:
        opening, group, closing = match.groups()
        rows = group_settings(group) if group else method_settings(path.stem)
        if not all(row.meaning for row in rows):
            return match.group()
        return f"{opening}\n{write_table(rows)}\n{closing}"

    return TABLE.sub(replaced, path.read_text(encoding="utf-8"))


def main() -> None:
    """Rewrite the pages that are out of date."""
    for path in [*sorted(PAGES.glob("*.md")), *OTHER_PAGES]:
        text = updated_page(path)
        if text != path.read_text(encoding="utf-8"):
            path.write_text(text, encoding="utf-8")
            sys.stdout.write(f"{path.relative_to(CONF.parent)} is up to date now\n")


if __name__ == "__main__":
    main()
