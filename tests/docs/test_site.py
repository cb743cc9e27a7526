"""The site's navigation shows every page, and no page hides behind a heading."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from cfl_flower.environment.plugins import CONF

ROOT = CONF.parent


class Loader(yaml.SafeLoader):
    """Reads mkdocs.yml, whose own tags do not matter here."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)

SITE: dict[str, Any] = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)


def entries(nav: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Yield the title and the path of every entry, and no title if it has none."""
    for entry in nav:
        if isinstance(entry, str):
            yield "", entry
        else:
            for title, what in entry.items():
                if isinstance(what, str):
                    yield title, what
                else:
                    yield from entries(what, title)


def pages() -> set[str]:
    """Return the pages that `docs/site.py` copies, but those that it adds itself."""
    text = (ROOT / "docs" / "site.py").read_text()
    (listed,) = re.findall(r"^PAGES = \((.*)\)$", text, re.M)
    found = {
        str(path.relative_to(ROOT))
        for pattern in re.findall(r'"([^"]+)"', listed)
        for path in ROOT.glob(pattern)
    }
    methods = {name for name in found if re.match(r"docs/methods/[^R]", name)}
    return found - methods


def test_navigation_has_every_page_once_with_a_title() -> None:
    shown = list(entries(SITE["nav"]))
    assert sorted(path for _, path in shown) == sorted(pages())
    assert all(title for title, _ in shown)
    # With it a README would be the index of its section, without an entry.
    assert "navigation.indexes" not in SITE["theme"]["features"]
