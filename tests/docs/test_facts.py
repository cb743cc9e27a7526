"""What pages say in numbers, and the presets that they name."""

import re
import shlex
from collections.abc import Iterator

import pytest

from cfl_flower.config.compose import compose_config
from cfl_flower.config.composition import compose_plain
from cfl_flower.config.options import list_options
from cfl_flower.config.overrides import CONF, expand
from cfl_flower.errors import ConfigError, NoConceptsError
from simulations.papers.published import PUBLISHED
from tests.conftest import SYSTEMS, sample
from tests.docs.facts import CLUSTERED, CONDITIONS, PAGES, ROOT, support_of, updated

METHODS = list_options("strategy")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_says_what_is_declared(path):
    text = path.read_text()
    assert updated(text) == text, "run `make docs`"
    # Markdown takes the rest of such a line for HTML.
    begun = re.findall(r"^[ >*|-]*<!--=([\w ]+)-->(?!$)", text, re.M)
    assert begun == []


@pytest.mark.parametrize("option", ["local", "central", "sums"])
@pytest.mark.parametrize("method", sample(METHODS, [*SYSTEMS, "fedavg", "ifca"]))
def test_the_table_of_privacy_says_what_runs_refuse(method, option):
    pytest.importorskip("dp_accounting")
    asked = {
        "local": ["privacy=local"],
        "central": ["privacy=central"],
        "sums": ["privacy.secure_sums=true"],
    }[option]
    needs = list(CONDITIONS.get(method, ()))
    if option == "sums":
        needs = [each for each in needs if not each.startswith("strategy/privacy=")]
    if option == "central" and getattr(support_of(method), option):
        needs.append("strategy.weighting=plain")
    supported = getattr(support_of(method), option)
    chosen = [f"strategy={method}", *asked, *needs]
    network = ["model=mlp"] if method in ("fedccfa", "fedfm") else []
    try:
        compose_config([*chosen, *network])
    except NoConceptsError:
        raise
    except ConfigError as error:
        assert not supported, error
        assert f"strategy={method}" in str(error)
    else:
        assert supported


def test_clusters_are_those_of_the_list_of_methods():
    text = (ROOT / "docs" / "methods" / "README.md").read_text()
    kinds = re.findall(r"^\| ([^|]+) \| (\[.*) \|$", text, re.M)
    named = {
        name: kind for kind, names in kinds for name in re.findall(r"\[(\w+)\]", names)
    }
    assert sorted(named) == METHODS
    clustered = {
        n for n, kind in named.items() if "clusters for" in kind or "follow" in kind
    }
    assert clustered | {"ccfl", "fedsoft"} == set(CLUSTERED)


PRESETS = sorted((CONF / "experiment").rglob("*.yaml"))
NAMING = [
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
    text = "\n".join(page.read_text() for page in NAMING)
    named = set(re.findall(r"\bexperiment=([\w/]+)(?![\w/*])", text))
    assert named <= {*list_options("experiment")}


@pytest.mark.parametrize("overrides", [*header_commands()], ids=" ".join)
def test_every_command_in_a_presets_header_composes(overrides):
    for job in expand(overrides):
        plain = compose_plain(job).settings
        assert plain["participants"] <= plain["clients"]
