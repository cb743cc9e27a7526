"""A run says which code made it, and whether that changed on the way."""

import io
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from cfl_flower.config.compose import compose_config
from cfl_flower.environment.code_version import ROOT, code_digest, commit
from cfl_flower.errors import ConfigError
from cfl_flower.runs.provenance import PROVENANCE, read_provenance, record_provenance
from cfl_flower.server_app import execute
from simulations.engines.inprocess import InProcessGrid
from tests.conftest import SMALL, Run

METHOD = """
from strategies.fedavg import FedAvg

class Mine(FedAvg):
    "Line {line}."
"""


def go_on(folder: Path, rounds: int) -> tuple[Run, str]:
    """Carry out, or go on with, a run of a method of one's own; return its lines."""
    own = ["strategy=fedavg", "strategy._target_=mine_of_provenance.Mine"]
    more = [f"rounds={rounds}", f"output_dir={folder}", "resume=true"]
    config = compose_config([*SMALL, *own, *more])
    lines = io.StringIO()
    execute(InProcessGrid(), config, Console(file=lines, width=1000))
    return Run(folder), lines.getvalue()


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a method of one's own."""
    path = tmp_path / "mine_of_provenance.py"
    path.write_text(METHOD.format(line=1))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mine_of_provenance", raising=False)
    return path


def test_a_run_names_the_code_that_made_it(tmp_path, module):
    run, _ = go_on(tmp_path / "run", 2)
    (entry,) = read_provenance(run.folder)
    assert entry["after_round"] == 0
    assert entry["version"] == "0.1.0"
    assert entry["commit"] == commit()
    assert entry["code"] == code_digest()
    assert entry["python"] == platform.python_version()
    assert set(entry["own_code"]) == {"mine_of_provenance"}
    assert run.summary["versions"]["cfl-flower"] == "0.1.0"
    assert run.summary["code_changed_after"] == []


def test_going_on_with_changed_code_of_ones_own_is_told_and_marked(tmp_path, module):
    go_on(tmp_path / "run", 2)
    same, said = go_on(tmp_path / "run", 3)
    assert "warning" not in said
    assert same.summary["code_changed_after"] == []
    module.write_text(METHOD.format(line=2))
    changed, said = go_on(tmp_path / "run", 4)
    (line,) = [line for line in said.splitlines() if line.startswith("warning")]
    assert line.startswith("warning: mine_of_provenance changed since round 3:")
    assert changed.summary["code_changed_after"] == [3]
    first, second = read_provenance(changed.folder)
    assert first["own_code"] != second["own_code"]


def test_code_of_rounds_that_are_done_again_is_not_that_of_the_run(tmp_path, module):
    own = ["strategy=fedavg", "strategy._target_=mine_of_provenance.Mine"]
    resolved = compose_config([*SMALL, *own]).resolved
    said = []
    # By another code each time: from the start, once more, after rounds 4, 2 and 2.
    for line, done in enumerate((0, 0, 4, 2, 2)):
        module.write_text(METHOD.format(line=line))
        told = record_provenance(tmp_path, resolved, done)
        said.append(told and told.partition("since ")[2][:7])
    assert said == [None, None, "round 4", "round 2", "round 2"]
    assert [each["after_round"] for each in read_provenance(tmp_path)] == [0, 2]


def test_a_damaged_provenance_is_one_line(tmp_path, module):
    run, _ = go_on(tmp_path / "run", 2)
    for damaged in ("{", "[1]", '[{"code": 1}]', '[{"after_round": []}]'):
        (run.folder / PROVENANCE).write_text(damaged)
        with pytest.raises(ConfigError, match=r"cannot be read; delete it"):
            read_provenance(run.folder)


def test_the_commit_is_that_of_the_checkout():
    if not (ROOT / ".git").exists():
        pytest.skip("this code is in no git checkout")
    command = ["git", "rev-parse", "HEAD"]
    head = subprocess.check_output(command, cwd=ROOT, text=True)
    assert (commit() or "").removesuffix("-dirty") == head.strip()
