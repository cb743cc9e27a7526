"""Folders of docs/baselines have the shape that Flower asks of its baselines."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from flwr.cli.build import build_fab_from_disk

from cfl_flower.config.compose import compose_run_config

DOCS = Path(__file__).parents[2] / "docs"

FILES = ("client_app", "dataset", "model", "server_app", "strategy", "utils")
"""Of `baselines/dev/test-baseline-structure.sh` in Flower's repository."""

SECTIONS = [
    *("About this baseline", "Experimental Setup", "Environment Setup"),
    *("Running the Experiments", "Expected Results"),
]
"""Of the README in Flower's template of a baseline."""


@pytest.mark.parametrize(
    "folder", [*DOCS.glob("baselines/*")], ids=lambda path: path.name
)
def test_a_baseline_is_one_that_flower_knows(folder):
    _, front, text = (folder / "README.md").read_text().split("---\n", 2)
    about = yaml.safe_load(front)
    assert about.keys() == {"title", "url", "labels", "dataset"}
    assert 4 <= len(about["labels"]) <= 10
    assert re.findall(r"^## (.+)$", text, re.M) == SECTIONS
    modules = [f"import {folder.name}.{file}" for file in FILES]
    subprocess.run([sys.executable, "-c", "\n".join(modules)], cwd=folder, check=True)
    assert build_fab_from_disk(folder)
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    defaults = project["tool"]["flwr"]["app"]["config"]
    for preset in folder.glob("conf/*.toml"):
        assert compose_run_config(defaults | tomllib.loads(preset.read_text()))
    assert [folder.name] == [
        config.names["strategy"] for config in compose_run_config(defaults)
    ]
