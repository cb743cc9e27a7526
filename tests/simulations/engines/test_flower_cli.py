from __future__ import annotations

import subprocess
import sys
from pathlib import Path


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
