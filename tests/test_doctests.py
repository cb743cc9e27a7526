"""Doctests are of the modules that all others import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
ASKED = [
    "cfl_flower/errors.py",
    "cfl_flower/models/networks.py",
    "cfl_flower/engine/stages/private_means.py",
    "strategies/fielding/threshold.py",
]
"""Modules that their packages import, none of which an earlier one's package does."""
COLLECT = """
import sys
import pytest

pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider", *sys.argv[1:]])
for name, module in sorted(sys.modules.items()):
    for kind in vars(module).values() if name.startswith(("cfl_", "strat")) else ():
        home = sys.modules.get(kind.__module__) if isinstance(kind, type) else None
        if getattr(home, getattr(kind, "__name__", ""), kind) is not kind:
            print("twice:", kind)
"""


def test_a_module_with_doctests_is_there_once() -> None:
    command = [sys.executable, "-c", COLLECT, *ASKED]
    found = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "twice: " not in found.stdout
    assert found.stderr == ""
