"""Parts of a user's own, in a folder of theirs, with what a wheel installs."""

import json
import os
import shutil
import sys
import tomllib
from pathlib import Path

import pytest

from cfl_flower.analysis.saved import load_run
from cfl_flower.environment import plugins
from simulations.engines.superlink import PROJECT
from simulations.new import write_skeleton
from simulations.report import render
from tests.conftest import WHOLE, run_command

CONSOLE = "import sys; sys.path.remove(''); from simulations.cli import app; app()"
"""`cfl-flower`, whose path lacks the current folder."""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder of packages with what a wheel has."""
    site = tmp_path / "site-packages"
    wheel = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    wheel = wheel["tool"]["hatch"]["build"]["targets"]["wheel"]
    for package in wheel["packages"]:
        shutil.copytree(
            PROJECT / package,
            site / package,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    for source, place in wheel["force-include"].items():
        shutil.copy(PROJECT / source, site / place)
    return site


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """A user's folder with a method and a network."""
    folder = tmp_path / "a user"
    write_skeleton("method", "own_method", folder)
    write_skeleton("model", "own_model", folder)
    return folder


@pytest.mark.parametrize(
    "engine",
    ["inprocess", pytest.param("ray", marks=[*WHOLE, pytest.mark.ray])],
)
def test_an_installed_command_runs_parts_of_the_users_own(engine, installed, user):
    asked = ["strategy=own_method", "model=own_model", "rounds=2", f"engine={engine}"]
    done = run_command(
        [sys.executable, "-c", CONSOLE, "run", *asked, "output_dir=run"],
        cwd=user,
        env={
            **os.environ,
            "PYTHONPATH": str(installed),
            "PYTHONDONTWRITEBYTECODE": "",
            "OMP_NUM_THREADS": "1",
        },
    )
    assert done.returncode == 0, done.stderr
    rounds = (user / "run" / "rounds.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in rounds] == [1, 2]
    # The parts came from the user's folder, everything else from what is installed.
    assert any(user.glob("__pycache__/own_method*"))
    assert any(installed.glob("cfl_flower/engine/__pycache__/method*"))


def test_the_list_knows_a_method_of_the_users_own(user):
    done = run_command(
        [sys.executable, "-c", CONSOLE, "list", "own_method"],
        cwd=user,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )
    assert done.returncode == 0, done.stderr
    assert "grouping_round" in done.stdout


OWN_DRIFT = """
from cfl_flower.data.worlds.changes import Regroup
from cfl_flower.settings import settings

@settings("drift")
class Mine(Regroup): ...
"""


def test_a_report_imports_none_of_the_users_own_parts(user, run_small, monkeypatch):
    (user / "own_drift.py").write_text(OWN_DRIFT)
    monkeypatch.syspath_prepend(str(user))
    monkeypatch.setenv("CFL_CONF", str(user / "conf"))
    own = ["strategy=own_method", "model=own_model", "drift._target_=own_drift.Mine"]
    run = run_small(*own)
    timeline = run.config.timeline
    for name in ("own_method", "own_model", "own_drift"):
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(plugins, "_named", set())
    saved = load_run(run.folder)
    page = render([saved])
    assert "own_method" in page.html
    assert saved.drifts == [3]
    expected = [timeline.concepts(round).tolist() for round in range(1, 5)]
    assert saved.concepts().T.tolist() == expected
    assert not {"own_method", "own_model", "own_drift"} & set(sys.modules)
