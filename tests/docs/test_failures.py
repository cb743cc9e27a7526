"""Each line of the page of failures comes when what it is about happens."""

import ast
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cfl_flower.errors import CflError
from simulations import run
from simulations.deploy import keys, submit, superlink
from tests.cfl_flower.client.test_node_config import SITES, Sites

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "failures.md").read_text(encoding="utf-8")
LINES = re.findall(r"^\| `(.+?)` \|", PAGE, re.MULTILINE)
QUICK = [*SITES, "strategy=fedavg", "strategy.local.epochs=1"]

ELSEWHERE = {
    "Connection attempt failed, retrying…": "test_watched",
    "Failed to initialize the connection…": "test_end_to_end",
    "the connection to the SuperLink was given up": "test_supernode",
    "client …, train: refused: it is asked for round": "test_operate",
    "run … ended as finished:failed": "test_end_to_end",
    "… takes no run": "test_submit",
    "… was not taken": "test_health",
    "no SuperLink answers at": "deploy/test_commands",
    "it expires on": "deploy/test_commands",
    "…; copy the right ca.pem": "deploy/test_commands",
    "… s from the SuperLink's": "deploy/test_commands",
    "others may read": "deploy/test_commands",
    "… of … devices here…, waiting for …": "test_nodes",
    "… of … devices here…, going on without": "test_nodes",
    "… of … devices here…, waiting for an answer": "test_nodes",
    "node … is left out: it has no client-id": "test_nodes",
    "node … is left out: a node cannot run the app": "test_nodes",
    "node … is left out: a device runs other code": "test_fleet",
    "client … is claimed by node": "test_nodes",
    "client … has left with node": "test_nodes",
    "round …, …: waiting for": "test_nodes",
    "client …, …: node: its device is not connected": "test_nodes",
    "client …, …: node: …; its text is": "test_node_config",
    "… has no samples": "test_node_config",
    "output_dir=… is in use": "test_directory",
    "_target_: … is not allowed": "test_plugins",
}
"""How lines begin that other tests provoke, and the file of these tests."""


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


def nobody(tools: Tools) -> None:
    grid = Sites(tools.root)
    grid.node_configs.clear()
    tools.run(grid=grid)


def full_disk(tools: Tools) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    tools.patch.setattr("cfl_flower.runs.directory.append_durably", refuse)
    tools.simulate()


def damaged(tools: Tools) -> None:
    tools.simulate()
    for path in tools.root.glob("**/rounds.jsonl"):
        path.write_text("{}{\n" + path.read_text())
    tools.simulate("rounds=2", "resume=true")


PROVOKED: dict[str, Callable[[Tools], object]] = {
    "cfl-flower error: …=… is not allowed": lambda t: submit.main(["prod", "rounds=0"]),
    "… is not there; make it with": lambda t: superlink.main([str(t.root)]),
    "--health=…": taken_health,
    "no node joined": nobody,
    "round 1, train, client …: … (…)": lambda t: t.simulate("faults.raises=0.5"),
    "…, train, client …: non-finite": lambda t: t.simulate("faults.nan=0.5"),
    "…, train, client …: timeout": lambda t: t.simulate(
        "faults.hangs=0.5", "system.task_timeout=0.2"
    ),
    "round …: none of": lambda t: t.simulate("faults.raises=1"),
    "nothing more can be written": full_disk,
    "output_dir=… already holds": lambda t: [t.simulate(), t.simulate("seed=0")],
    "output_dir=… has the lines": lambda t: [
        t.simulate(),
        (t.root / "run" / "checkpoint" / "checkpoint.json").unlink(),
        t.simulate("resume=true"),
    ],
    "warning: nothing to resume": lambda t: t.simulate("resume=true"),
    "output_dir=… holds another run": lambda t: [
        t.simulate(),
        t.simulate("seed=9", "resume=true"),
    ],
    "… cannot be read": damaged,
}
"""What provokes the line that begins so."""


def pattern(line: str) -> re.Pattern[str]:
    """Return what matches a line of the page, whatever stands for `…`."""
    return re.compile(".*".join(map(re.escape, line.split("…"))))


def beginning(line: str) -> str:
    """Return how a line begins: of several beginnings, the longest."""
    begun = [start for start in (*PROVOKED, *ELSEWHERE) if line.startswith(start)]
    return max(begun, key=len, default=line)


def test_the_page_has_all_that_is_provoked_and_nothing_else():
    begun = [beginning(line) for line in LINES]
    assert sorted(begun) == sorted([*PROVOKED, *ELSEWHERE])


@pytest.mark.parametrize("line", [e for e in LINES if beginning(e) not in ELSEWHERE])
def test_a_line_comes_when_it_should(line, request):
    tools = Tools(request)
    PROVOKED[beginning(line)](tools)
    said = tools.said()
    assert pattern(line).search(said), said[-3000:]


@pytest.mark.parametrize("line", [e for e in LINES if beginning(e) in ELSEWHERE])
def test_a_line_is_one_that_the_tests_of_another_file_wait_for(line):
    (path,) = (ROOT / "tests").rglob(f"{ELSEWHERE[beginning(line)]}.py")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    texts = [each.value for each in ast.walk(tree) if isinstance(each, ast.Constant)]
    longest = max(line.split("…"), key=len).strip("; ")
    expected = longest.removeprefix("ended as finished:failed; ")
    assert any(expected in text for text in texts if isinstance(text, str))
