"""Flower's command line, called one way; needs nothing that a device has not."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from cfl_flower.errors import ConfigError

ENDED = "finished:"
COMPLETED = f"{ENDED}completed"
"""Prefix of Flower's status of a run that ended, and the status of a good one."""

DECORATION = re.compile(r"\x1b\[[\d;]*m|[╭╮╰╯│─]")
"""Colours and frames of Flower's output on a terminal."""

QUIET = {
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    # The app's packages are installed; none is fetched for a run.
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}


def need(path: Path, remedy: str) -> Path:
    """Return an absolute path; a `ConfigError` says that nothing is there."""
    if not path.exists():
        raise ConfigError(f"{path} is not there; {remedy}")
    return path.absolute()


def divide(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return a command's own arguments, and those after `--`, which are Flower's."""
    given = [*arguments, "--"]
    end = given.index("--")
    return given[:end], given[end + 1 : -1]


def environment(home: Path | None = None) -> dict[str, str]:
    """Return the environment of Flower's commands, found beside this Python.

    FLWR_HOME is `home`, or the user's own.
    """
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    own = {"FLWR_HOME": str(home)} if home else {}
    found = {**QUIET, **os.environ, "PATH": beside, **own}
    # Flower's output is parsed, and colours would get in the way.
    found.pop("FORCE_COLOR", None)
    return found


def one_line(said: str, most: int = 500) -> str:
    r"""Return the end of what Flower said as one line, without colours and frames.

    Examples
    --------
    >>> one_line("\x1b[92mINFO:\x1b[0m a run\n╭─ Error ─╮\n│ no reply │\n╰─────────╯")
    'INFO: a run Error no reply'
    >>> one_line("an unlikely place", most=8)
    '… place'
    """
    line = " ".join(DECORATION.sub(" ", said).split())
    # No word is cut.
    return line if len(line) <= most else re.sub(r"^\S* ", "… ", line[-most:])


def with_command(name: str, variables: Mapping[str, str]) -> dict[str, str]:
    """Return an environment that has a command of Flower's, or raise `ConfigError`."""
    if shutil.which(name, path=variables.get("PATH")) is None:
        fault = f"Flower's command {name} is neither beside this Python nor on PATH"
        remedy = "install this project into the environment that runs it"
        raise ConfigError(f"{fault}; {remedy}")
    return dict(variables)


def flwr(
    *arguments: str, variables: Mapping[str, str], folder: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Return what Flower's CLI answered, or raise `ConfigError` if there is none."""
    command = ["flwr", *arguments]
    env = with_command("flwr", variables)
    return subprocess.run(
        command, env=env, cwd=folder, capture_output=True, text=True, check=False
    )


def wait_for_end(
    *arguments: str,
    variables: Mapping[str, str],
    patience: float,
    folder: str | None = None,
) -> str:
    """Return the status of a run once it has ended, or its last one.

    The run is the first that `flwr list` shows with these arguments, in a folder;
    patience is in seconds.
    """
    deadline = time.monotonic() + patience
    last = "unknown"
    words = ("list", *arguments, "--format", "json")
    while time.monotonic() < deadline:
        answer = flwr(*words, variables=variables, folder=folder).stdout
        with suppress(ValueError, KeyError, IndexError):  # no answer, or not yet
            last = str(json.loads(answer)["runs"][0]["status"])
        if last.startswith(ENDED):
            break
        time.sleep(1)
    return last


def become(
    command: list[str], folder: Path, variables: Mapping[str, str]
) -> None:  # pragma: no cover - nothing returns to be measured
    """Go to a folder and turn into a command of Flower's, so that signals reach it.

    ``variables`` are those that its environment has beside Flower's. Nobody else may
    read the files that it makes: Flower's database holds uploads.
    """
    # It starts the app's processes.
    env = with_command("flower-superexec", environment(folder))
    os.umask(0o077)
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    os.execvpe(command[0], command, {**env, **variables})
