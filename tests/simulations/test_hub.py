"""What `flwr app publish` uploads to Flower's hub is enough for runs and reports.

The hub takes files of a few kinds only. Which is asked of Flower itself.
"""

import os
import shutil
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
from flwr.cli.app_cmd.publish import _collect_file_paths, _validate_files
from flwr.cli.build import build_fab_from_disk
from flwr.cli.config_utils import load_and_validate
from flwr.cli.utils import filter_paths_for_publish

from simulations.engines.superlink import PROJECT
from tests.conftest import run_command

LOST = {
    *("cfl_flower/py.typed", "simulations/card.md.jinja"),
    *("simulations/deploy/Dockerfile", "simulations/deploy/device.txt"),
    "simulations/deploy/systemd",
}
"""What it does not take of the packages: for the pages of exports, and for servers."""

RUN_ALL = """
import sys
from importlib import import_module
for line in sys.argv[1:]:
    name, *words = line.split()
    assert import_module(f"simulations.{name}").main(words) == 0, line
"""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """Copy what the hub would take of what git knows into a folder of its own."""
    folder = tmp_path / "cfl-flower"
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = run_command(listed, cwd=PROJECT, check=True)
    there = {name: PROJECT / name for name in names.stdout.splitlines()}
    files = {name: path for name, path in there.items() if path.is_file()}
    taken = filter_paths_for_publish(files)
    for name, path in taken.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / name)
    packages = ("cfl_flower/", "strategies/", "clients/", "simulations/", "conf/")
    left = {name for name in files.keys() - taken if name.startswith(packages)}
    assert {name for name in left if not name.startswith(tuple(LOST))} == set()
    return folder


def test_the_hub_takes_all_that_runs_need(app):
    load_and_validate(app / "pyproject.toml", check_module=False)
    _validate_files(_collect_file_paths(app))
    with zipfile.ZipFile(BytesIO(build_fab_from_disk(app))) as fab:
        assert {"LICENSE", "conf/config.yaml"} <= {*fab.namelist()}


@pytest.mark.slow
@pytest.mark.whole
def test_what_the_hub_takes_runs_compares_and_reports(app, tmp_path):
    user = tmp_path / "user"
    user.mkdir()
    quick = "rounds=2 drift=none engine=inprocess"
    lines = [
        f"compare --bare strategy=fedavg,ifca {quick} output_dir=runs/both",
        "report runs/both --output page.html",
        "new method own_method",
        f"run strategy=own_method {quick} output_dir=runs/own",
    ]
    # As if the copy were installed.
    variables = {**os.environ, "PYTHONPATH": str(app)}
    done = run_command([sys.executable, "-c", RUN_ALL, *lines], cwd=user, env=variables)
    assert done.returncode == 0, done.stderr
    assert "IntersectionObserver" in (user / "page.html").read_text()
    assert (user / "runs" / "own" / "summary.json").is_file()
