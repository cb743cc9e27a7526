"""The page of each method exists, and says what the code says."""

import re

import pytest

from cfl_flower.config.overrides import CONF
from tests.docs.settings_tables import OTHER_PAGES, PAGES, updated_page

METHODS = sorted(path.stem for path in (CONF / "strategy").glob("*.yaml"))
SECTIONS = ["What it does", "When to use it", "What leaves the device", "Settings"]


def test_every_method_has_a_page_and_every_page_a_method():
    pages = {path.stem for path in PAGES.glob("*.md")} - {"README"}
    missing = sorted(set(METHODS) - pages)
    hint = f"write docs/methods/NAME.md as docs/methods/ditto.md is: {missing}"
    assert not missing, hint
    assert pages == set(METHODS)
    # Its author need not name a new method there; `make site` follows what is named.
    named = re.findall(r"\]\((\w+)\.md\)", (PAGES / "README.md").read_text())
    assert {"fedavg", "fielding", "flexcfl", "stocfl", "fedccfa", "ccfl"} <= set(named)


NAMES = sorted(path.stem for path in PAGES.glob("*.md") if path.stem != "README")


TABLED = [*(PAGES / f"{name}.md" for name in [*NAMES, "README"]), *OTHER_PAGES]


@pytest.mark.parametrize("path", TABLED, ids=lambda path: path.stem)
def test_a_page_has_the_tables_that_the_declarations_give(path):
    assert updated_page(path) == path.read_text(), "run `make docs`"


@pytest.mark.parametrize("name", NAMES)
def test_a_page_answers_what_a_reader_asks(name):
    page = (PAGES / f"{name}.md").read_text()
    assert re.findall(r"^## (.*)$", page, re.M) == SECTIONS
    assert f"`strategy={name}`" in page
    assert re.search(rf"^cfl-flower run strategy={name}\b", page, re.M)
