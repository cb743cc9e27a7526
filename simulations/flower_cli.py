"""Flower's command line, called one way; needs nothing that a device has not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cfl_flower.errors import CflError, ConfigError

QUIET = {
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_TELEMETRY_ENABLED": "0",
    # The app's packages are installed; none is fetched for a run.
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}


def report(error: CflError) -> int:
    """Say in one line on stderr why nothing came of it; return the exit code."""
    print(f"cfl-flower error: {error}", file=sys.stderr)
    return error.exit_code


def need(path: Path, remedy: str) -> Path:
    """Return an absolute path, or say that nothing is there.

    Raises
    ------
    ConfigError
    """
    if not path.exists():
        raise ConfigError(f"{path} is not there; {remedy}")
    return path.absolute()


def environment(home: Path | None = None) -> dict[str, str]:
    """Return the environment of Flower's commands, found beside this Python.

    Parameters
    ----------
    home : Path, optional
        FLWR_HOME, if not the user's own.
    """
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    own = {"FLWR_HOME": str(home)} if home else {}
    found = {**QUIET, **os.environ, "PATH": beside, **own}
    # What Flower says is read: in colours, nothing in it would be found.
    found.pop("FORCE_COLOR", None)
    return found


def flwr(
    *arguments: str, variables: Mapping[str, str], folder: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Return what Flower's CLI answered."""
    return subprocess.run(
        ["flwr", *arguments],
        env=dict(variables),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def list_runs(
    *arguments: str, variables: Mapping[str, str], folder: str | None = None
) -> list[dict[str, Any]]:
    """Return the runs of a SuperLink, by `flwr list`; none if it does not answer."""
    done = flwr(
        "list", *arguments, "--format", "json", variables=variables, folder=folder
    )
    try:
        runs: list[dict[str, Any]] = json.loads(done.stdout)["runs"]
    except (ValueError, KeyError):
        return []
    return runs


def become(
    command: list[str], folder: Path, variables: Mapping[str, str]
) -> None:  # pragma: no cover - nothing returns to be measured
    """Go to a folder and turn into a command, so that signals reach it."""
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    print(" ".join(command), flush=True)
    os.execvpe(command[0], command, dict(variables))
