"""Every preset that docs, headers and tables name exists and composes."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from cfl_flower.config.composition import compose_plain
from cfl_flower.config.options import list_options
from cfl_flower.config.overrides import CONF, expand
from simulations.papers.published import PUBLISHED

ROOT = Path(__file__).parents[2]
PRESETS = sorted((CONF / "experiment").rglob("*.yaml"))
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.glob("docs/**/*.md")),
    PUBLISHED,
    *PRESETS,
]


def header_commands() -> Iterator[list[str]]:
    """Yield the overrides of each command in the comments of a preset."""
    for path in PRESETS:
        text = path.read_text().replace("\\\n#", " ")
        for line in re.findall(r"^#   python -m simulations\.\w+ (.*)$", text, re.M):
            words = shlex.split(line)
            yield [word for word in words if not word.startswith("--")]


def test_every_preset_that_a_page_names_is_there():
    # Each composes: tests/cfl_flower/config/test_resolved.py.
    text = "\n".join(page.read_text() for page in PAGES)
    named = set(re.findall(r"\bexperiment=([\w/]+)(?![\w/*])", text))
    assert named <= {*list_options("experiment")}


@pytest.mark.parametrize("overrides", [*header_commands()], ids=" ".join)
def test_every_command_in_a_presets_header_composes(overrides):
    for job in expand(overrides):
        plain = compose_plain(job).settings
        assert plain["participants"] <= plain["clients"]
