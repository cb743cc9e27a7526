"""The page of each method: it is there, and says what the code says."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from cfl_flower.config.compose import CONF, compose_config

DOCS = Path(__file__).parents[2] / "docs" / "methods"
METHODS = sorted(path.stem for path in (CONF / "strategy").glob("*.yaml"))
COMMON = ("local", "shift", "policy")
"""Groups of settings that are described once, for every method."""

AGAIN = "pretraining"
"""The group that has the settings of `local` again."""

SECTIONS = ["What it does", "When to use it", "What leaves the device", "Settings"]


def settings(name: str) -> dict[str, str]:
    """Return every setting of a method with its default, nested ones by their path."""
    config = compose_config([f"strategy={name}"])
    found = dict(_flat(config.resolved["strategy"]))
    assert set(found) == set(_fields(config.strategy)), "what the dataclass has"
    return found


def _flat(node: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in node.items():
        if isinstance(value, Mapping):
            if key != AGAIN:
                yield from _flat(value, f"{prefix}{key}.")
        elif f"{prefix}{key}" != "client" and key not in ("_target_", "name"):
            yield f"{prefix}{key}", shown(value)


def _fields(settings: Any, prefix: str = "") -> Iterator[str]:
    for field in fields(settings):
        value = getattr(settings, field.name)
        if is_dataclass(value):
            if field.name != AGAIN:
                yield from _fields(value, f"{prefix}{field.name}.")
        elif field.name != "client":
            yield f"{prefix}{field.name}"


def shown(value: Any) -> str:
    """Write a default as the pages do."""
    words = {None: "null", True: "true", False: "false"}
    if value is None or isinstance(value, bool):
        return words[value]
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def table(page: str) -> dict[str, str]:
    """Return the settings of a page's tables, with their defaults."""
    rows = re.findall(r"^\| `([\w.]+)` \| [^|]* \| ([^|]*) \| [^|]*\|$", page, re.M)
    assert len(rows) == len({name for name, _ in rows}), "a setting stands there twice"
    return dict(rows)


def test_every_method_has_a_page_and_every_page_a_method() -> None:
    pages = {path.stem for path in DOCS.glob("*.md")} - {"README"}
    missing = sorted(set(METHODS) - pages)
    hint = f"write docs/methods/NAME.md as docs/methods/ditto.md is: {missing}"
    assert not missing, hint
    assert pages == set(METHODS)


def test_the_index_groups_only_methods_that_there_are() -> None:
    # A new method is found by its page; who adds it need not edit the index.
    index = (DOCS / "README.md").read_text()
    named = re.findall(r"\]\((\w+)\.md\)", index)
    assert set(named) <= set(METHODS)
    assert {"fedavg", "fielding", "flexcfl", "stocfl", "fedccfa", "ccfl"} <= set(named)


PAGES = sorted(path.stem for path in DOCS.glob("*.md") if path.stem != "README")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_the_methods_settings_with_their_defaults(name: str) -> None:
    page = (DOCS / f"{name}.md").read_text()
    code, described = settings(name), table(page)
    own = {
        key: value
        for key, value in code.items()
        if key not in ("weighting", "sampling") and key.split(".")[0] not in COMMON
    }
    lines = "\n".join(f"| `{key}` |  | {value} |  |" for key, value in own.items())
    assert own.keys() <= described.keys(), f"the settings of {name} are\n{lines}"
    assert {key: code.get(key) for key in described} == described


@pytest.mark.parametrize("name", PAGES)
def test_a_page_says_what_a_reader_asks(name: str) -> None:
    page = (DOCS / f"{name}.md").read_text()
    assert re.findall(r"^## (.*)$", page, re.M) == SECTIONS
    assert f"`strategy={name}`" in page
    assert re.search(rf"^python -m simulations.run strategy={name}\b", page, re.M)
    assert not re.search(r"^\| `[\w.]+` \|.*\| +\|$", page, re.M), "without a meaning"


def test_what_is_common_is_described_once() -> None:
    described = table((DOCS / "README.md").read_text())
    code = settings("ccfl") | settings("flexcfl")
    common = {key for key in code if key.split(".")[0] in COMMON}
    assert described == {key: code[key] for key in common}


def test_links_lead_somewhere() -> None:
    for page in DOCS.parent.rglob("*.md"):
        for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            if not link.startswith("http"):
                assert (page.parent / link).exists(), f"{page.name}: {link}"
