"""A real SuperLink and real SuperNodes on the loopback, with TLS and keys."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from simulations.deploy import connect, keys
from simulations.superlink import PROJECT

START = 60.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(condition: Callable[[], Any], what: str, seconds: float = START) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen in {seconds:g} s"
        time.sleep(0.1)


class Deployment:
    """What runs below one folder; all of it ends with the test."""

    def __init__(self, root: Path) -> None:
        self.root, self.keys = root, root / "keys"
        self.address = f"127.0.0.1:{free_port()}"
        self.variables = {
            **os.environ,
            # Marks every process, whoever starts it, and keeps Flower's files here.
            "FLWR_HOME": str(root / "operator"),
            # `own` is what a user installed everywhere, if a test puts something there.
            "PYTHONPATH": f"{PROJECT}{os.pathsep}{root / 'own'}",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }

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

    def start_superlink(self) -> None:
        _, port = self.address.split(":")
        home = str(self.root / "superlink")
        module = "simulations.deploy.superlink"
        self.start("superlink", module, str(self.keys), "--port", port, "--home", home)

        def answers() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", int(port))) == 0

        wait_for(answers, "the start of the SuperLink")

    def start_device(self, name: str, first: str = "") -> subprocess.Popen[bytes]:
        return self.start(
            name,
            "simulations.deploy.supernode",
            *(self.address, str(self.keys), "--client", name),
            *("--data-dir", str(self.root / name), "--port", str(free_port())),
            *("--home", str(self.root / f"home-{name}")),
            first=first,
        )

    def register(self, *names: str) -> None:
        """Make keys, and register those of the devices but the last."""
        ports = [self.address, str(self.keys / "ca.pem")]
        public = [str(self.keys / f"{name}.pub") for name in names]
        assert connect.main(["loopback", *ports, *public]) == 0

    def processes(self, part: str = "") -> list[int]:
        """Return what was started here whose command line contains something."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                ours = str(self.root).encode() in (entry / "environ").read_bytes()
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if ours and part in line and int(entry.name) != os.getpid():
                found.append(int(entry.name))
        return found

    def online(self) -> int:
        """Return how many devices the SuperLink sees."""
        done = subprocess.run(
            ["flwr", "supernode", "list", "loopback", "--format", "json"],
            env=self.variables,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.count('"online"')

    def joined(self, name: str) -> int:
        """Return how often a device was let in; one that died seems online for long."""
        return self.log(name).count("SuperNode ID")

    def kill(self, *parts: str) -> int:
        """Kill -9 what was started here; return how many processes that were."""
        targets = [pid for part in parts for pid in self.processes(part)]
        for pid in targets:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        return len(targets)


@pytest.fixture
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployment]:
    """A running SuperLink whose authority and server key exist."""
    found = Deployment(tmp_path)
    monkeypatch.setenv("FLWR_HOME", found.variables["FLWR_HOME"])
    folder = str(found.keys)
    assert keys.main([folder, "--host", "127.0.0.1"]) == 0
    try:
        found.start_superlink()
        yield found
    finally:
        while found.kill(""):
            time.sleep(0.2)
