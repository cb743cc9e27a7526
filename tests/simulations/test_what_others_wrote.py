"""Names and texts of a run that somebody else may have made are shown as text."""

import json
import shutil
from pathlib import Path

import pytest

from cfl_flower.analysis.saved import load_run
from cfl_flower.errors import ConfigError
from cfl_flower.types import CLASS_COUNTS
from simulations.report import render
from simulations.shell.terminal import report
from tests.conftest import Runner

TITLE = "\x1b]0;owned\x07\nsecond line"


@pytest.fixture
def folder(undisturbed: Runner, tmp_path: Path) -> Path:
    copy: Path = shutil.copytree(
        undisturbed("strategy=fedavg").folder, tmp_path / "run"
    )
    return copy


def rename(folder: Path, name: str) -> None:
    path = folder / "config.yaml"
    old = "name: fedavg\n"
    assert path.read_text().count(old) == 1
    path.write_text(path.read_text().replace(old, f"name: {json.dumps(name)}\n"))


def test_a_name_is_no_command_of_tex(folder):
    rename(folder, r"\input{/etc/passwd}$^~{}")
    latex = render([load_run(folder)]).latex
    shown = r"\textbackslash{}input\{/etc/passwd\}\$\textasciicircum{}"
    assert shown + r"\textasciitilde{}\{\}" in latex
    assert r"\input" not in latex


@pytest.mark.parametrize("name", ['=HYPERLINK("http://x")', "@SUM(1)", "+1", "-1"])
def test_a_name_is_no_formula(name, folder):
    rename(folder, name)
    table = render([load_run(folder)]).csv
    assert "," + name not in table
    assert ',"' + name[:2] not in table
    assert "'" + name[:2] in table


def test_a_terminal_is_not_steered(folder, capsys):
    rename(folder, f"fedavg{TITLE}")
    (folder / "failure.txt").write_text(TITLE)
    run = load_run(folder)
    report(ConfigError(TITLE))
    for text in (run.strategy, run.failure, capsys.readouterr().err.strip()):
        assert text.isprintable()


NO_COUNTS = dict.fromkeys(CLASS_COUNTS, 0)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("rounds.jsonl", {"accuracy": 1e308}),
        ("clients.jsonl", {"accuracy": -1e308}),
        ("clients.jsonl", {"client": 10**18}),
        ("clients.jsonl", {"per_class": [{**NO_COUNTS, "correct": 10**400}]}),
        ("clients.jsonl", {"per_class": [{**NO_COUNTS, "support": -1}]}),
        ("clients.jsonl", {"per_class": [{"support": 3}]}),
        ("clients.jsonl", {"per_class": {"support": 3}}),
    ],
)
def test_huge_numbers_are_one_line(name, values, folder):
    *lines, last = (folder / name).read_text().splitlines()
    row = json.loads(last) | values
    (folder / name).write_text("\n".join([*lines, json.dumps(row), ""]))
    with pytest.raises(ConfigError, match=r"^[^\n]+$"):
        render([load_run(folder)])


@pytest.mark.parametrize("key", ["clients", "rounds"])
def test_a_run_of_a_billion_is_one_line(key, folder):
    (folder / "concepts.json").unlink()
    path = folder / "config.yaml"
    lines = path.read_text().splitlines()
    start = f"{key}: "
    changed = [f"{key}: {10**9}" if each.startswith(start) else each for each in lines]
    assert changed != lines
    path.write_text("\n".join(changed))
    with pytest.raises(ConfigError, match="more than 10000000 clients or rounds"):
        render([load_run(folder)])
