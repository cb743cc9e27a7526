"""Each line of the page of failures comes when what it is about happens."""

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flwr.app import ConfigRecord, Message

from cfl_flower.building import locate
from cfl_flower.config.compose import compose_config
from cfl_flower.errors import CflError
from cfl_flower.runs.directory import RunDirectory
from simulations import run
from simulations.deploy import doctor, flower_superlink, keys, submit, superlink
from simulations.engines.superlink import free_ports
from tests.cfl_flower.client.test_node_config import SITES, Sites, node_config

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "failures.md").read_text(encoding="utf-8")
LINES = re.findall(r"^\| `(.+?)` \|", PAGE, re.MULTILINE)
QUICK = [*SITES, "strategy=fedavg", "strategy.local.epochs=1"]

ELSEWHERE = {
    "Connection attempt failed, retrying…": "test_watched",
    "Failed to initialize the connection…": "test_end_to_end",
    "the connection to the SuperLink was given up": "test_supernode",
    "client …, train: refused: it is asked for round … after round …": "test_operate",
    "run … ended as finished:failed; going on from its checkpoint": "test_restarts",
}
"""Lines that take real devices or several runs, and the file of the tests that waits
for them."""


class Tools:
    """What provokes a failure, and all that is said meanwhile."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self.root: Path = request.getfixturevalue("tmp_path")
        self.patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
        self._run = request.getfixturevalue("run_small")
        self._out = request.getfixturevalue("capsys")
        self._log = request.getfixturevalue("caplog")
        self._log.set_level(logging.WARNING, "cfl_flower")
        self.why = ""
        for name in ("SAY_EVERY", "JOIN_TIMEOUT"):
            self.patch.setattr(f"cfl_flower.communication.nodes.{name}", 0.0)
        self.patch.setattr("cfl_flower.communication.fleet.SAY_EVERY", 0.0)

    def tell(self, work: Callable[..., Any], *arguments: Any, **more: Any) -> None:
        """Do something that may fail in one line."""
        try:
            work(*arguments, **more)
        except CflError as error:
            self.why += f"{error}\n"

    def run(self, *overrides: str, grid: Any = None, **more: Any) -> None:
        self.tell(self._run, *QUICK, "rounds=1", *overrides, grid=grid, **more)

    def simulate(self, *overrides: str) -> None:
        small = "strategy=fedavg rounds=1 clients=4 participants=4 engine=inprocess"
        folder = f"output_dir={self.root / 'run'}"
        run.main([*small.split(), folder, *overrides])

    def said(self) -> str:
        out, err = self._out.readouterr()
        return f"{out}\n{err}\n{self._log.text}\n{self.why}"


class Late(Sites):
    """Devices whose replies come at the fourth look."""

    looks = 0

    def pull_messages(self, message_ids: Any) -> list[Message]:
        self.looks += 1
        return super().pull_messages(message_ids) if self.looks % 4 == 0 else []


class Other(Sites):
    """Devices that run other code."""

    def answer(self, message: Message) -> Message:
        reply = super().answer(message)
        reply.content["identity"] = ConfigRecord({"code": "x", "client-id": "site-a"})
        return reply


def made_keys(tools: Tools, *more: str) -> Path:
    folder = tools.root / "keys"
    assert keys.main([str(folder), "--host", "127.0.0.1", *more]) == 0
    return folder


def taken_health(tools: Tools) -> None:
    folder = made_keys(tools)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "SERVER_DAYS", 1)
        import socket

        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            command = [str(folder), "--home", str(tools.root), "--health", address]
            superlink.main(command)


def old_certificate(tools: Tools) -> None:
    tools.patch.setattr(keys, "SERVER_DAYS", 1)
    tools.tell(doctor.check_server, made_keys(tools), "127.0.0.1")


def other_name(tools: Tools) -> None:
    tools.tell(doctor.check_server, made_keys(tools), "10.0.0.1")


def wrong_clock(tools: Tools) -> None:
    date = "Fri, 27 Nov 2026 14:03:00 GMT"
    tools.patch.setattr(doctor, "call", lambda *_: (None, date))
    tools.tell(doctor.check_clock, "h", 1)


def open_key(tools: Tools) -> None:
    folder = made_keys(tools, "--device", "site-a")
    (folder / "site-a").chmod(0o644)
    tools.tell(doctor.check_key, folder / "site-a")


def no_superlink(tools: Tools) -> None:
    command = tools.root / "bin" / "flwr"
    command.parent.mkdir()
    said = "Error Connection to the SuperLink is unavailable. Please check your network"
    command.write_text(f"#!/bin/sh\necho '│ {said} │'\n")
    command.chmod(0o755)
    path = f"{command.parent}:/usr/bin:/bin"
    tools.patch.setattr(submit, "environment", lambda: {"PATH": path})
    tools.patch.setenv("PATH", path)
    tools.tell(submit.start, "prod", [])


def missing(tools: Tools, *before: str) -> None:
    grid = Sites(tools.root)
    grid.events[1] = lambda: grid.remove_node(1001)
    tools.run("rounds=2", grid=grid)
    if before:
        tools.run(*before, grid=grid)


def claimed(tools: Tools) -> None:
    grid = Sites(tools.root)
    grid.add_node(node_config(tools.root, "site-a"))
    tools.run(grid=grid)


def named(tools: Tools, config: dict[str, Any]) -> None:
    grid = Sites(tools.root)
    grid.add_node(config)
    tools.run(grid=grid)


def empty_folder(tools: Tools) -> None:
    grid = Sites(tools.root)
    (tools.root / "site-b" / "first.npz").unlink()
    tools.run(grid=grid)


def full_disk(tools: Tools) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    tools.patch.setattr("cfl_flower.runs.directory.append_durably", refuse)
    tools.simulate()


def in_use(tools: Tools) -> None:
    tools.patch.setattr("cfl_flower.runs.directory.LOCK_TIMEOUT", 0.1)
    config = compose_config([*QUICK, f"output_dir={tools.root / 'run'}"])
    with RunDirectory(config):
        tools.tell(RunDirectory(config).__enter__)


def damaged(tools: Tools) -> None:
    tools.simulate()
    for path in tools.root.glob("**/rounds.jsonl"):
        path.write_text("{}{\n" + path.read_text())
    tools.simulate("rounds=2", "resume=true")


def no_pair(tools: Tools) -> None:
    files = str(tools.root / "server.pem"), str(tools.root / "server.key")
    flower_superlink.renew([], *files)


PROVOKED: dict[str, Callable[[Tools], object]] = {
    "cfl-flower error: …=… is not allowed": lambda t: submit.main(["prod", "rounds=0"]),
    "… takes no run: …": no_superlink,
    "… is not there; make it with": lambda t: superlink.main([str(t.root)]),
    "--health=…": taken_health,
    "no SuperLink answers at": lambda t: t.tell(
        doctor.call, "127.0.0.1", free_ports(1)[0]
    ),
    "it expires on": old_certificate,
    "…; copy the right ca.pem": other_name,
    "… s from the SuperLink's": wrong_clock,
    "others may read": open_key,
    "no node joined": lambda t: t.run(grid=emptied(t)),
    "… of … devices here…, waiting for … since": lambda t: missing(
        t, "rounds=3", "resume=true"
    ),
    "… of … devices here…, going on without": missing,
    "… of … devices here…, waiting for an answer": lambda t: t.run(grid=Late(t.root)),
    "node … is left out: it has no client-id": lambda t: named(t, {"data-dir": "x"}),
    "client … is claimed by node": claimed,
    "node … is left out: a device runs other code": lambda t: t.run(grid=Other(t.root)),
    "node … is left out: a node cannot run the app": lambda t: named(
        t, {"client-id": "../a"}
    ),
    "round …, …: waiting for": lambda t: t.run(grid=Late(t.root)),
    "client … has left with node": missing,
    "client …, …: node: its device is not connected": missing,
    "client …, …: node: …; its text is": empty_folder,
    "… has no samples": empty_folder,
    "round 1, train, client …: … (…)": lambda t: t.simulate("faults.raises=0.5"),
    "…, train, client …: non-finite": lambda t: t.simulate("faults.nan=0.5"),
    "…, train, client …: timeout": lambda t: t.simulate(
        "faults.hangs=0.5", "system.task_timeout=0.2"
    ),
    "round …: none of": lambda t: t.simulate("faults.raises=1"),
    "nothing more can be written": full_disk,
    "output_dir=… already holds": lambda t: [t.simulate(), t.simulate("seed=0")],
    "output_dir=… is in use": in_use,
    "output_dir=… holds another run": lambda t: [
        t.simulate(),
        t.simulate("seed=9", "resume=true"),
    ],
    "… cannot be read": damaged,
    "… was not taken": no_pair,
    "_target_: … is not allowed": lambda t: t.tell(locate, "somebodys.Class"),
}
"""What provokes the line that begins so."""


def emptied(tools: Tools) -> Sites:
    grid = Sites(tools.root)
    grid.node_configs.clear()
    return grid


def pattern(line: str) -> re.Pattern[str]:
    """Return what matches a line of the page, whatever stands for `…`."""
    return re.compile(".*".join(map(re.escape, line.split("…"))))


def provoker(line: str) -> Callable[[Tools], object]:
    """Return what provokes a line: of several beginnings, the longest."""
    begun = [start for start in PROVOKED if line.startswith(start)]
    return PROVOKED[max(begun, key=len)]


def test_the_page_has_all_that_is_provoked_and_nothing_else():
    begun = {
        max((s for s in PROVOKED if line.startswith(s)), key=len, default=line)
        for line in LINES
    }
    assert begun == {*PROVOKED, *ELSEWHERE}
    assert len(LINES) == len(PROVOKED) + len(ELSEWHERE)


@pytest.mark.parametrize("line", [line for line in LINES if line not in ELSEWHERE])
def test_a_line_comes_when_it_should(line, request):
    tools = Tools(request)
    provoker(line)(tools)
    said = tools.said()
    assert pattern(line).search(said), said[-3000:]


@pytest.mark.parametrize("line", ELSEWHERE)
def test_a_line_is_one_that_the_tests_of_another_file_wait_for(line):
    (path,) = (ROOT / "tests").rglob(f"{ELSEWHERE[line]}.py")
    text = path.read_text(encoding="utf-8")
    longest = max(line.split("…"), key=len).strip("; ")
    assert longest.removeprefix("ended as finished:failed; ") in text
