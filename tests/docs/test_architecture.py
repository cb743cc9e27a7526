"""docs/architecture.md names what exists."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from cfl_flower.engine.stages import STAGES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
NAMES = sorted(set(re.findall(r"`((?:cfl_flower|strategies|clients)\.[\w.]+)`", PAGE)))


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


@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_the_page_exists(name):
    assert find(name) is not None


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
