"""What `flwr app publish` uploads to Flower's hub is enough for runs and reports.

The hub takes files of a few kinds only. Which is asked of Flower itself.
"""

import os
import shutil
import sys
import zipfile
from io import BytesIO
from pathlib import Path

from flwr.cli.app_cmd.publish import _collect_file_paths, _validate_files
from flwr.cli.build import build_fab_from_disk
from flwr.cli.config_utils import load_and_validate
from flwr.cli.utils import filter_paths_for_publish

from simulations.engines.superlink import PROJECT
from tests.conftest import run_command


def uploaded(folder: Path) -> Path:
    """Copy what the hub would take of what git knows into a folder of its own."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = run_command(listed, cwd=PROJECT, check=True)
    there = {name: PROJECT / name for name in names.stdout.splitlines()}
    files = {name: path for name, path in there.items() if path.is_file()}
    for name, path in filter_paths_for_publish(files).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / name)
    return folder


def test_what_the_hub_takes_runs_compares_and_reports(tmp_path):
    app = uploaded(tmp_path / "cfl-flower")
    load_and_validate(app / "pyproject.toml", check_module=False)
    _validate_files(_collect_file_paths(app))
    with zipfile.ZipFile(BytesIO(build_fab_from_disk(app))) as fab:
        assert {"LICENSE", "conf/config.yaml"} <= {*fab.namelist()}
    user = tmp_path / "user"
    user.mkdir()
    quick = "rounds=2 drift=none engine=inprocess"
    for line in (
        f"compare --bare strategy=fedavg,ifca {quick} output_dir=runs/both",
        "report runs/both --output page.html",
        "new method own_method",
        f"run strategy=own_method {quick} output_dir=runs/own",
    ):
        name, *words = line.split()
        # As if the copy were installed.
        done = run_command(
            [sys.executable, "-m", f"simulations.{name}", *words],
            cwd=user,
            env={**os.environ, "PYTHONPATH": str(app)},
        )
        assert done.returncode == 0, done.stderr
    assert "IntersectionObserver" in (user / "page.html").read_text()
    assert (user / "runs" / "own" / "summary.json").is_file()
