import os
import subprocess
import sys

import pytest

from simulations.engines.flower_cli import environment
from simulations.engines.superlink import PROJECT
from tests.conftest import run_command


def test_neither_flower_nor_ray_tells_its_makers_of_a_run(monkeypatch):
    for name in ("FLWR_TELEMETRY_ENABLED", "RAY_USAGE_STATS_ENABLED"):
        monkeypatch.delenv(name, raising=False)
        assert environment()[name] == "0"
        monkeypatch.setenv(name, "1")
        assert environment()[name] == "1"
    code = (
        "from ray._common.usage import usage_lib as u; print(u.usage_stats_enabled())"
    )
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED")
    said = run_command([sys.executable, "-c", code], env=environment(), check=True)
    assert said.stdout.strip() == "False"


def test_what_flowers_command_writes_is_for_nobody_else(tmp_path):
    home = tmp_path / "home"
    code = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from simulations.engines.flower_cli import become\n"
        "os.umask(0o022)\n"
        "become(['touch', 'state.db'], Path(sys.argv[1]), os.environ)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(home)], check=True)
    modes = [oct(path.stat().st_mode)[-3:] for path in (home, home / "state.db")]
    assert modes == ["700", "600"]


START = {
    "submit": ["prod", "strategy=fedavg"],
    "connect": ["prod", "127.0.0.1:9092", "{keys}/ca.pem", "{keys}/site-a.pub"],
    "superlink": ["{keys}"],
    "supernode": ["127.0.0.1:9092", "{keys}", "--client=site-a", "--data-dir=."],
}


@pytest.mark.parametrize("name", START)
def test_an_environment_without_flowers_commands_is_told(name, tmp_path):
    """In a checkout beside a Python that has Flower, and not its scripts."""
    keys = tmp_path / "keys"
    module = f"simulations.deploy.keys {keys} --host 127.0.0.1 --device site-a"
    subprocess.run([sys.executable, "-m", *module.split()], check=True)
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    asked = [word.format(keys=keys) for word in START[name]]
    path = os.pathsep.join([str(PROJECT), *filter(None, sys.path)])
    done = run_command(
        [bare / "bin" / "python", "-m", f"simulations.deploy.{name}", *asked],
        cwd=tmp_path,
        env={"PATH": os.defpath, "PYTHONPATH": path, "FLWR_HOME": str(tmp_path)},
    )
    assert done.returncode == 2
    assert "is neither beside this Python nor on PATH; install" in done.stderr
    assert done.stderr.count("\n") == 1
