from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cfl_flower.errors import ConfigError
from simulations.engines.flower_cli import environment, flwr


def test_neither_flower_nor_ray_tells_its_makers_of_a_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("FLWR_TELEMETRY_ENABLED", "RAY_USAGE_STATS_ENABLED"):
        monkeypatch.delenv(name, raising=False)
        assert environment()[name] == "0"
        monkeypatch.setenv(name, "1")
        assert environment()[name] == "1"
    code = (
        "from ray._common.usage import usage_lib as u; print(u.usage_stats_enabled())"
    )
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED")
    command = [sys.executable, "-c", code]
    said = subprocess.run(
        command, env=environment(), check=True, capture_output=True, text=True
    )
    assert said.stdout.strip() == "False"


def test_what_flowers_command_writes_is_for_nobody_else(tmp_path: Path) -> None:
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


def test_an_environment_without_flowers_command_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="flwr is neither beside this Python nor on"):
        flwr("list", variables={"PATH": str(tmp_path)})
