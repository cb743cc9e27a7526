"""What messages and pages tell to install can be had: this project is on no index."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from cfl_flower.errors import ConfigError
from cfl_flower.settings import require_package

ROOT = Path(__file__).parents[2]

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
WANTED = {
    Requirement(each).name
    for some in (PROJECT["dependencies"], *EXTRAS.values())
    for each in some
}
"""What this project asks an index for, and so may tell a user to ask for."""


def shown() -> list[Path]:
    """Return every file that a user may read, but the history and what pip reads."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [Path(line) for line in names.stdout.splitlines()]
    suffixes = {".py", ".md", ".yaml", ".toml", ".ipynb", ".service"}
    return [
        path
        for path in paths
        if path.suffix in suffixes
        and path.parts[0] != "tests"
        and path.name not in ("CHANGELOG.md", "pyproject.toml")
    ]


@pytest.mark.parametrize("path", shown(), ids=str)
def test_nobody_is_told_to_ask_an_index_for_this_project(path: Path) -> None:
    text = (ROOT / path).read_text()
    asked = re.findall(r"pip install[^\n`]*\bcfl[-_]flower(?![\w-]*\.whl|-\*)", text)
    assert asked == []
    assert "cfl-flower[" not in text


def required_packages() -> set[str]:
    """Return the packages that `require_package` is asked for, anywhere."""
    found = set()
    for path in (ROOT / "cfl_flower", ROOT / "simulations"):
        for module in path.rglob("*.py"):
            for node in ast.walk(ast.parse(module.read_text())):
                called = getattr(getattr(node, "func", None), "id", "")
                if called == "require_package" and isinstance(node, ast.Call):
                    first = node.args[0]
                    if isinstance(first, ast.Constant):
                        found.add(str(first.value))
    return found | {"tensorboard", "mlflow", "wandb"}


@pytest.mark.parametrize("package", sorted(required_packages()))
def test_a_missing_package_is_named_as_the_index_has_it(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError) as refused:
        require_package(package, "key", "value")
    (asked,) = re.findall(r"pip install (\S+) first$", str(refused.value))
    assert asked in WANTED
