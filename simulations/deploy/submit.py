r"""Submit a run to a SuperLink, stream its lines, and tell the truth about its end.

    python -m simulations.deploy.submit prod strategy=fielding dataset=folder \
        clients=3 participants=3 rounds=50 output_dir=/srv/cfl-flower/runs/first

What `flwr run . prod --stream` does, and more: the exit code is 0 only for a run that
completed, and with `--restarts` a run whose server was killed goes on from its
checkpoint, as often as that. Ctrl-C leaves the run alone: watch it again with
`flwr log RUN prod`, stop it with `flwr stop RUN prod`.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cfl_flower.config.compose import (
    DEFAULT_DATA_DIR,
    build_settings,
    check_settings,
)
from cfl_flower.config.composition import compose_plain_sweep
from cfl_flower.errors import ERROR_MARK, ConfigError, RunFailedError
from simulations.deploy.logs import COLOURS
from simulations.engines.flower_cli import (
    COMPLETED,
    ENDED,
    environment,
    one_line,
    wait_for_end,
    with_command,
)
from simulations.engines.superlink import run_command
from simulations.shell.terminal import Parser, command, natural

STARTED = re.compile(r"Successfully started run (\d+)")

GAVE_UP = re.compile(
    # Colours, and what Flower's log puts before a message.
    r"(?:\x1b\[[\d;]*m)*(?:(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) [\d:, -]*"
    rf"(?:\x1b\[0m)?: +)?{ERROR_MARK}(.*?)(?:\x1b\[0m)?\s*"
)
"""A line that says why a run ended. The same words within a line are of others: of
devices, or of a traceback."""

PATIENCE = 300.0
"""Seconds to wait for a run to end whose lines have ended."""


ANY_DATA = ("privacy", "server_optimizer", "selection", "strategy.weighting")
"""Settings that are wrong with a method whatever the data are."""


def check_here(overrides: Sequence[str]) -> None:
    """Raise the `ConfigError` that the SuperLink would, as far as it is known here.

    Folders are those of the SuperLink, and data may be there, or on devices, alone:
    without them what goes with what is checked with other data.
    """
    there = ("data_dir", "output_dir")
    own = [each for each in overrides if each.partition("=")[0] not in there]
    for composed in compose_plain_sweep(shlex.join(own)):
        _, _, groups = build_settings(composed)
        try:
            groups["dataset"].check(str(DEFAULT_DATA_DIR.expanduser()))
        except ConfigError:
            check_without_data(own)
        else:
            check_settings(composed)


def check_without_data(overrides: Sequence[str]) -> None:
    """Raise the `ConfigError` of a run whatever its data are, if it has one."""
    known = [each for each in overrides if not each.startswith("dataset")]
    for composed in compose_plain_sweep(shlex.join([*known, "dataset=folder"])):
        try:
            check_settings(composed)
        except ConfigError as error:
            if str(error).startswith(ANY_DATA):
                raise


def submit(name: str, overrides: Sequence[str], restarts: int = 0) -> None:
    """Carry out a run, again and again from its checkpoint if its server dies.

    One that does not complete is a `RunFailedError`.
    """
    keys = [override.partition("=")[0] for override in overrides]
    if restarts and "output_dir" not in keys:
        raise ConfigError("--restarts needs output_dir=FOLDER, to find its checkpoint")
    asked = list(overrides)
    for left in range(restarts, -1, -1):
        run, reason = start(name, asked)
        known = (name, "--run-id", run)
        status = wait_for_end(*known, variables=environment(), patience=PATIENCE)
        if not status.startswith(ENDED):
            remedy = f"see flwr list {name}, or flwr stop {run}"
            raise RunFailedError(f"run {run} is {status}; {remedy}")
        if status == COMPLETED:
            return
        if reason or not left:
            raise RunFailedError(reason or f"run {run} ended as {status}")
        print(f"run {run} ended as {status}; going on from its checkpoint", flush=True)
        asked = [*overrides, "resume=true"]


def start(name: str, overrides: Sequence[str]) -> tuple[str, str]:
    """Start a run and relay its lines until they end.

    Returns its id, and the reason if it gave up by itself. A SuperLink that takes no
    run is a `RunFailedError`, in Flower's words.
    """
    run = ""
    reason = ""
    output = []
    variables = with_command("flwr", environment())
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(
            run_command(shlex.join(overrides), Path(folder), name),
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process,
    ):
        for line in process.stdout or ():
            output.append(line)
            # The lines after the first one are the run's own.
            if not run and (found := STARTED.search(line)):
                run = found.group(1)
            elif found := GAVE_UP.fullmatch(line):
                reason = found.group(1)
            shown = line if sys.stdout.isatty() else COLOURS.sub("", line)
            print(shown, end="", flush=True)
    if not run:
        raise RunFailedError(f"{name} takes no run: {one_line(''.join(output))}")
    return run, reason


@command
def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit code."""
    parser = Parser("deploy.submit", __doc__)
    parser.add_argument("name", metavar="NAME", help="see simulations.deploy.connect")
    parser.add_overrides()
    again = "after a killed server"
    parser.add_argument("--restarts", type=natural, default=0, help=again)
    unchecked = "where parts or data are on the SuperLink alone"
    parser.add_argument("--unchecked", action="store_true", help=unchecked)
    asked = parser.parse_overrides(arguments)
    if not asked.unchecked:
        check_here(asked.overrides)
    try:
        submit(asked.name, asked.overrides, asked.restarts)
    except KeyboardInterrupt:
        print("the run goes on; see flwr list", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
