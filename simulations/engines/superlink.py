"""`flwr run` on a private SuperLink that ends with us, and the truth about the run.

A local SuperLink is shared by all checkouts of a machine, outlives its caller, and
`flwr run --stream` exits 0 whatever happens to the run. So each run here gets a
SuperLink of its own: own home, own free ports, a neutral working directory (Ray workers
import from it first), stopped with this process, and its status is read at the end.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TextIO

from cfl_flower.config.overrides import OVERRIDES
from cfl_flower.environment import plugins
from cfl_flower.environment.code_version import COMMIT, commit
from cfl_flower.errors import ERROR_MARK, RunFailedError
from cfl_flower.runs.console import CONSOLE, DONE_MARK
from simulations.engines.flower_cli import environment as flower_environment
from simulations.engines.flower_cli import one_line, wait_for_end

PROJECT = Path(__file__).resolve().parents[2]
APP = PROJECT / "simulations" / "pyproject.toml"
CONSOLE_FILE = "console.log"
START_TIMEOUT = 60.0
TRACEBACK = "Traceback (most recent call last)"
LED_TO = "The above exception was the direct cause of the following exception"


def run_on_superlink(
    overrides: str, workers: int, gpus_per_worker: float = 0.0
) -> None:
    """Run the app in a simulation on a private SuperLink, streaming its lines.

    The overrides are in a line, with absolute paths; there is a simulated SuperNode for
    every worker process. A status that is anything but completed is a
    `RunFailedError`, which says why.
    """
    with (
        tempfile.TemporaryDirectory(prefix="cfl-flower-") as home,
        private_superlink(
            Path(home), **{CONSOLE: f"{home}/{CONSOLE_FILE}"}
        ) as environment,
    ):
        federation = (
            f"num-supernodes={workers} client-resources-num-cpus=1 "
            f"client-resources-num-gpus={gpus_per_worker} "
            'init-args-logging-level="error" init-args-log-to-driver=false'
        )
        # A Ray cluster that exists has the CPUs that it has.
        if "RAY_ADDRESS" not in environment:
            federation += f" init-args-num-cpus={workers}"
        reason = _submit(environment, Path(home), overrides, federation)
        if reason is None:
            status = wait_for_end(variables=environment, patience=60, folder=home)
            words = (Path(home) / "stream.log").read_text()
            reason = f"the run ended as {status}: {root_cause(words)}"
    if reason:
        raise RunFailedError(reason)


def root_cause(log: str) -> str:
    r"""Return the first error of the last chain in one line, or the log's last words.

    What clients raised before stands in the log, too, and is not why the run ended.

    Examples
    --------
    >>> client = f"{TRACEBACK}:\n  fit()\nKeyError: 'x'\n"
    >>> first = f"{TRACEBACK}:\n  pool()\nValueError: no actors\n\n{LED_TO}:\n\n"
    >>> root_cause(f"{client}{first}{TRACEBACK}:\nRuntimeError: crashed\n")
    'ValueError: no actors'
    """
    blocks = log.split(TRACEBACK)
    start = len(blocks) - 1
    while start > 1 and LED_TO in blocks[start - 1]:
        start -= 1
    found = re.search(r"^[\w.]*(Error|Exception): .*", blocks[start], re.MULTILINE)
    return one_line(found[0] if found else log, most=2000)


@contextmanager
def private_superlink(home: Path, **variables: str) -> Iterator[dict[str, str]]:
    """Start a SuperLink for simulations; yield the environment that leads to it.

    Its FLWR_HOME and working directory is `home`; it and all that it starts have these
    further environment variables.
    """
    http, control = free_ports(2)
    environment = {
        **flower_environment(home),
        **plugins.environment(),
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(http),
        "FLWR_LOCAL_CONTROL_API_PORT": str(control),
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        # Ray would keep an account of 100,000 tasks, kilobytes each, that nobody reads.
        "RAY_task_events_report_interval_ms": "0",
        # The app's copy is in no checkout.
        COMMIT: commit() or "",
        **variables,
    }
    command = [
        *("flower-superlink", "--insecure", "--simulation"),
        *("--isolation", "subprocess"),
        *("--control-api-address", f"127.0.0.1:{control}"),
        *("--host", "127.0.0.1", "--port", str(http)),
        *("--database", str(home / "state.db")),
    ]
    with (home / "superlink.log").open("w") as log:
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=home,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - one C call, before any thread
        )
        try:
            _wait_until_up(process, http, home / "superlink.log")
            yield environment
        finally:
            _stop(process)


def run_command(overrides: str, folder: Path, *options: str) -> list[str]:
    """Return Flower's command that submits the app, and prepare it in a folder."""
    # A file, because a value on the command line cannot hold every quote.
    config = folder / "run-config.toml"
    config.write_text(f"{OVERRIDES} = {json.dumps(overrides)}\n")
    settings = ["--stream", "--run-config", str(config)]
    return ["flwr", "run", str(app_folder(folder)), *options, *settings]


def app_folder(folder: Path) -> Path:
    """Return a folder with nothing but the Flower app.

    Flower looks at all files below an app: at 80,000 in a checkout with its virtual
    environment, for four seconds. And a wheel has no pyproject.toml and LICENSE beside
    its packages, which Flower asks for: it carries them below `simulations`.
    """
    app = folder / "app"
    app.mkdir()
    root = APP.parent if APP.exists() else PROJECT
    for name in ("pyproject.toml", "LICENSE"):
        shutil.copy(root / name, app)
    for package in ("cfl_flower", "strategies", "clients", "conf"):
        hidden = shutil.ignore_patterns("__pycache__")
        shutil.copytree(PROJECT / package, app / package, ignore=hidden)
    return app


def _submit(
    environment: dict[str, str], home: Path, overrides: str, federation: str
) -> str | None:
    """Submit the run and relay its lines until the app has done or given up.

    From there to the end of `flwr run` Flower takes seconds, for nothing of ours.
    Returns the reason for giving up, empty if all is saved, or None if it did not say.
    """
    command = run_command(overrides, home, "--federation-config", federation)
    stream = home / "stream.log"
    console = home / CONSOLE_FILE
    console.touch()
    with stream.open("w") as log, console.open() as lines:
        process = subprocess.Popen(
            command, env=environment, cwd=home, stdout=log, stderr=subprocess.STDOUT
        )
        reason = None
        while reason is None and process.poll() is None:
            time.sleep(0.1)
            reason = _relay(lines)
        if reason is None:
            reason = _relay(lines)
    if process.poll():
        raise RunFailedError(f"flwr run failed: {one_line(stream.read_text())}")
    process.kill()
    process.wait()
    return reason


def _relay(lines: TextIO) -> str | None:
    """Print what the run has to say; return the reason if it gave up.

    It is empty if it is done.
    """
    for line in lines.readlines():
        if line.startswith(ERROR_MARK):
            return line.removeprefix(ERROR_MARK).strip()
        if line.startswith(DONE_MARK):
            return ""
        print(line, end="", flush=True)
    return None


def _wait_until_up(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise RunFailedError(f"the SuperLink did not start: {one_line(log.read_text())}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Stop the SuperLink, gently, and what is left of all that it started."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(10)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def die_with_parent() -> None:
    """Ask Linux to end this child when its parent is killed, even with -9."""
    if sys.platform == "linux":
        ctypes.CDLL("libc.so.6").prctl(1, signal.SIGKILL)


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback on which nobody listens at the moment."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
