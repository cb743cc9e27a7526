"""A SuperLink and SuperNodes of one machine, below one folder, with TLS and keys.

For trials and tests: real processes that can be killed, each with its log beside the
others'.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from cfl_flower.errors import RunFailedError
from simulations.engines.flower_cli import one_line
from simulations.engines.superlink import PROJECT, free_ports
from tests.conftest import run_command

START = 60.0
"""Seconds within which a process answers, or does what it was started for."""

CONNECTION = "loopback"
"""What Flower's commands call the SuperLink."""


def wait_for(condition: Callable[[], Any], what: str, seconds: float = START) -> None:
    """Wait until something holds, or raise a `RunFailedError` that says what did not.

    ``seconds`` is how long at most.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise RunFailedError(f"{what} did not happen in {seconds:g} s")
        time.sleep(0.1)


class Deployment:
    """What runs below one folder, and can be killed by what its command line says."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.keys = root / "keys"
        self.port = free_ports(1)[0]
        self.variables = {
            **os.environ,
            # Marks every process, whoever starts it, and keeps Flower's files here.
            "FLWR_HOME": str(root / "operator"),
            # `own` is what a user installed everywhere, if somebody puts it there.
            "PYTHONPATH": f"{PROJECT}{os.pathsep}{root / 'own'}",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def log(self, name: str) -> str:
        path = self.root / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def start(
        self, name: str, *arguments: str, first: str = ""
    ) -> subprocess.Popen[bytes]:
        """Start a module; Python looks for modules in the folder `first` first."""
        path = os.pathsep.join(filter(None, [first, self.variables["PYTHONPATH"]]))
        with (self.root / f"{name}.log").open("a") as log:
            return subprocess.Popen(
                [sys.executable, "-m", *arguments],
                cwd=self.root,
                env={**self.variables, "PYTHONPATH": path},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def carry_out(self, name: str, *arguments: str) -> None:
        """Run a module to its end; a `RunFailedError` says how a bad one came."""
        if self.start(name, *arguments).wait():
            raise RunFailedError(f"{arguments[0]} failed: {one_line(self.log(name))}")

    def make_keys(self, *names: str) -> None:
        """Make the SuperLink's certificate, and keys of devices, unless there."""
        devices = ("--device", *names) if names else ()
        host = ("--host", "127.0.0.1")
        module = "simulations.deploy.keys"
        self.carry_out("keys", module, str(self.keys), *host, *devices)

    def register(self, *names: str) -> None:
        """Let devices join whose keys there are, and tell Flower's CLI the address."""
        public = [str(self.keys / f"{name}.pub") for name in names]
        authority = str(self.keys / "ca.pem")
        self.carry_out(
            "connect",
            "simulations.deploy.connect",
            CONNECTION,
            self.address,
            authority,
            *public,
        )

    def start_superlink(self, *more: str) -> subprocess.Popen[bytes]:
        """Start the SuperLink, for the first time or again, and wait until it is up."""
        home = str(self.root / "superlink")
        where = (str(self.keys), "--port", str(self.port), "--home", home)
        process = self.start("superlink", "simulations.deploy.superlink", *where, *more)

        def answers() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self.port)) == 0

        wait_for(answers, "the start of the SuperLink")
        return process

    def start_device(
        self, name: str, first: str = "", port: int = 0, more: Sequence[str] = ()
    ) -> subprocess.Popen[bytes]:
        """Start a SuperNode, which calls the SuperLink, or what else is at a port."""
        return self.start(
            name,
            "simulations.deploy.supernode",
            f"127.0.0.1:{port or self.port}",
            str(self.keys),
            f"--client={name}",
            f"--data-dir={self.root / name}",
            f"--port={free_ports(1)[0]}",
            f"--home={self.root / f'home-{name}'}",
            *more,
            first=first,
        )

    def processes(self, part: str = "") -> list[psutil.Process]:
        """Return what was started here whose command line contains something."""
        found = []
        mark = f"{self.root}{os.sep}"
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                ours = any(mark in value for value in process.environ().values())
                if ours and part in " ".join(process.cmdline()):
                    found.append(process)
        return [process for process in found if process.pid != os.getpid()]

    def online(self) -> int:
        """Return how many devices the SuperLink sees."""
        done = run_command(
            ["flwr", "supernode", "list", CONNECTION, "--format", "json"],
            env=self.variables,
        )
        return done.stdout.count('"online"')

    def joined(self, name: str) -> int:
        """Return how often a device was let in; one that died seems online for long."""
        return self.log(name).count("SuperNode ID")

    def kill(self, *parts: str) -> int:
        """Kill -9 what was started here; return how many processes that were."""
        targets = [each for part in parts for each in self.processes(part)]
        for process in targets:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        return len(targets)

    def end(self) -> None:
        """Kill all that was started here, and what that started meanwhile."""
        while self.kill(""):
            time.sleep(0.2)
