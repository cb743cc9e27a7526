"""Pages name what exists, and say of it what the code says."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import cfl_flower
from cfl_flower.config.overrides import CONF
from cfl_flower.engine.stages import STAGES
from tests.conftest import SYSTEMS, sample
from tests.docs import facts
from tests.docs.settings_tables import OTHER_PAGES, PAGES, updated_page

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PATHS = sorted(set(re.findall(r"`((?:cfl_flower|strategies|clients)\.[\w.]+)`", PAGE)))


def find(path: str) -> Any:
    """Return the module, class, function or method behind a dotted path."""
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: Any = import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(path)


@pytest.mark.parametrize("name", PATHS)
def test_every_name_of_the_page_exists(name):
    assert find(name) is not None


@pytest.mark.parametrize("path", facts.PAGES, ids=lambda path: path.name)
def test_a_table_begins_after_an_empty_line(path):
    """Python-Markdown, which makes the site, takes others for a paragraph."""
    text = path.read_text(encoding="utf-8")
    code = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
    lines = code.sub("", text).splitlines()
    rule = re.compile(r" *\|[\s:|]*-[\s:|-]*")
    rules = [n for n, line in enumerate(lines) if rule.fullmatch(line)]
    assert [lines[n - 2] for n in rules if n > 1 and lines[n - 2].strip()] == []


def test_every_package_of_cfl_flower_has_a_row():
    packages = {
        path.parent.name for path in (ROOT / "cfl_flower").glob("*/__init__.py")
    }
    assert packages == set(re.findall(r"^\| `cfl_flower/(\w+)/`", PAGE, re.MULTILINE))


def test_the_round_of_the_page_is_that_of_the_code():
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    code = (ROOT / "cfl_flower" / "engine" / "rounds.py").read_text(encoding="utf-8")
    place = 0
    for line in filter(None, block.splitlines()):
        shown = line.removeprefix("# ") if re.match(r"# \w+_\w+$", line) else line
        assert shown.strip() in code[place:], line
        place = code.index(shown.strip(), place)


def test_every_stage_of_a_run_has_a_row():
    names = [stage.__name__ for stage in STAGES]
    assert [name for name in names if f"| `{name}` |" not in PAGE] == []


PYTHON = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| `(\S+)` \| (.*) \|$", PYTHON, re.MULTILINE))


@pytest.mark.parametrize("name", ROWS)
def test_a_line_is_that_of_the_docstring(name):
    assert ROWS[name] == find(name).__doc__.strip().splitlines()[0]


def test_every_public_name_has_a_line():
    names = {f"cfl_flower.{name}" for name in cfl_flower.__all__}
    assert names - {"cfl_flower.__version__"} <= ROWS.keys()


METHODS = {path.stem for path in (CONF / "strategy").glob("*.yaml")}
NAMES = sorted(path.stem for path in PAGES.glob("*.md") if path.stem != "README")
TABLED = {name: PAGES / f"{name}.md" for name in [*NAMES, "README"]}
TABLED |= {path.stem: path for path in OTHER_PAGES}
SECTIONS = ["What it does", "When to use it", "What leaves the device", "Settings"]


def test_every_method_has_a_page_and_every_page_a_method():
    assert {*NAMES} == METHODS, "write docs/methods/NAME.md as docs/methods/ditto.md is"
    # Its author need not name a new method there; `make site` follows what is named.
    named = re.findall(r"\]\((\w+)\.md\)", (PAGES / "README.md").read_text())
    assert {"fedavg", "fielding", "flexcfl", "stocfl", "fedccfa", "ccfl"} <= set(named)


@pytest.mark.parametrize("name", sample(TABLED, [*SYSTEMS, "README", "privacy"]))
def test_a_page_has_the_tables_that_the_declarations_give(name):
    path = TABLED[name]
    assert updated_page(path) == path.read_text(), "run `make docs`"


@pytest.mark.parametrize("name", NAMES)
def test_a_page_answers_what_a_reader_asks(name):
    page = (PAGES / f"{name}.md").read_text()
    assert re.findall(r"^## (.*)$", page, re.M) == SECTIONS
    assert f"`strategy={name}`" in page
    assert re.search(rf"^cfl-flower run strategy={name}\b", page, re.M)
