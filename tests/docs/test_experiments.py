"""Every preset that docs, headers and tables name exists and composes."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from cfl_flower.config.composition import compose_plain
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


def named_experiments(page: Path) -> set[str]:
    """Return the overrides of a page that choose a preset, without patterns."""
    found = re.findall(r"\bexperiment=([\w/]+)(?![\w/*])", page.read_text())
    return {f"experiment={name}" for name in found}


def header_commands() -> Iterator[list[str]]:
    """Yield the overrides of each command in the comments of a preset."""
    for path in PRESETS:
        text = path.read_text().replace("\\\n#", " ")
        for line in re.findall(r"^#   python -m simulations\.\w+ (.*)$", text, re.M):
            words = shlex.split(line)
            yield [word for word in words if not word.startswith("--")]


NAMED = sorted({name for page in PAGES for name in named_experiments(page)})
COMMANDS = list(header_commands())


@pytest.mark.parametrize("override", NAMED)
def test_every_named_experiment_composes(override):
    plain, choices, _ = compose_plain([override])
    assert f"experiment={choices['experiment']}" == override
    assert plain["rounds"] > 0


@pytest.mark.parametrize("overrides", COMMANDS, ids=" ".join)
def test_every_command_in_a_presets_header_composes(overrides):
    for job in expand(overrides):
        plain = compose_plain(job).settings
        assert plain["participants"] <= plain["clients"]
