"""What all tests share: small real runs, in process."""

import io
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import hydra
import pytest
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from hypothesis import settings
from omegaconf import DictConfig
from rich.console import Console

from cfl_flower.building import locate
from cfl_flower.client import node_config
from cfl_flower.communication.fleet import Fleet
from cfl_flower.config import composition
from cfl_flower.config.compose import compose_config
from cfl_flower.environment import plugins
from cfl_flower.run_config import RunConfig
from cfl_flower.runs.checkpoint import Checkpoint
from cfl_flower.server_app import execute
from simulations import export
from simulations.engines.inprocess import InProcessGrid

# How long an example takes says something about the machine, not about the code.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# In the background Ctrl-C is ignored, and by all that is started there.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SMALL = ["clients=12", "participants=6", "rounds=4", "drift.rounds=[3]"]
SMALL += ["partition.groups=3", "strategy.local.epochs=1"]
"""A run of a second: 12 clients, 4 rounds, a drift in the third."""

TIMES = ("seconds",)

WHOLE = [pytest.mark.slow, pytest.mark.whole]
"""Marks of a row that only `make test-whole` runs, as `make test` runs a sample."""


SYSTEMS = ("fielding", "flexcfl", "ccfl", "stocfl", "fedccfa")
"""The methods of the five papers that this project is about."""


def sample(rows: Iterable[Any], kept: Iterable[Any]) -> list[Any]:
    """Return the rows of a table, of which `make test` runs the kept ones."""
    chosen = set(kept)
    return [row if row in chosen else pytest.param(row, marks=WHOLE) for row in rows]


def pytest_configure() -> None:
    """Keep pytest's captured stderr open, which absl's log handler would have.

    Hydra's help closes all handlers, and absl's closes a stream that is not stderr any
    more. tensorboard and dp-accounting import it.
    """
    with suppress(ImportError):
        from absl import logging as absl_logging

        absl_logging.get_absl_handler().python_handler.stream = sys.__stderr__


@cache
def _composed(options: tuple[str, ...]) -> DictConfig:
    return hydra.compose("config", list(options), return_hydra_config=True)


def _compose_once(name: str, options: list[str], **asked: bool) -> DictConfig:
    """Return what Hydra makes of options of groups, which takes it a tenth of a second.

    A user's own folder of options may change; nothing writes to the project's.
    """
    if options[-1] == "hydra.searchpath=[]":
        return _composed(tuple(options))
    return hydra.compose(name, options, **asked)


@pytest.fixture(autouse=True)
def _options_composed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(composition, "compose", _compose_once)


def _forget(descriptor: int) -> None:
    """Leave a file to the system, which writes it when it likes."""


@pytest.fixture(scope="session", autouse=True)
def _no_power_failure() -> Iterator[None]:
    """Let no run wait for the disk, of which each takes half its time.

    A killed process loses nothing by it, and what is synced when has its own tests.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", _forget)
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_state_at_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let devices in process that name no folder for their state have one of tests.

    All runs of a day are in it.
    """
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("state-of-devices")
        patch.setattr(node_config, "DEFAULT_STATE_DIR", str(folder))
        patch.setattr(node_config, "RUNS_A_DAY", 10**6)
        yield


def _no_package(name: str) -> None:
    """Find no package of a name."""


@pytest.fixture(scope="session", autouse=True)
def _no_onnx() -> Iterator[None]:
    """Let exports write no ONNX, which takes nine tenths of their time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "find_spec", _no_package)
        yield


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a server look for devices at once, and ask those that failed again."""
    monkeypatch.setattr("cfl_flower.engine.turns.REST", 1e-3)
    monkeypatch.setattr("cfl_flower.engine.uploads.LOOK_AROUND", 1e-3)


@pytest.fixture(autouse=True)
def _no_own_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what earlier tests' commands allowed."""
    monkeypatch.setattr(plugins, "_named", set())


@dataclass(frozen=True)
class Run:
    """The files of a finished run."""

    folder: Path

    @property
    def rounds(self) -> list[dict[str, Any]]:
        """The lines of rounds.jsonl."""
        return self._lines("rounds.jsonl")

    @property
    def clients(self) -> list[dict[str, Any]]:
        """The lines of clients.jsonl."""
        return self._lines("clients.jsonl")

    @property
    def summary(self) -> dict[str, Any]:
        """summary.json."""
        summary: dict[str, Any] = json.loads((self.folder / "summary.json").read_text())
        return summary

    @property
    def failures(self) -> list[dict[str, Any]]:
        """The failures of all rounds."""
        return [failure for row in self.rounds for failure in row["failures"]]

    @property
    def numbers(self) -> list[dict[str, Any]]:
        """All rows, without timings and devices' names."""
        rows = self.rounds + self.clients
        left = {*TIMES, "device"}
        return [{k: v for k, v in row.items() if k not in left} for row in rows]

    @property
    def config(self) -> RunConfig:
        """What the first line of config.yaml composes to."""
        line = (self.folder / "config.yaml").read_text().splitlines()[0]
        return compose_config(shlex.split(line)[4:])

    @property
    def state(self) -> Any:
        """What the method remembered after the last round."""
        resolved = self.config.resolved
        state = locate(resolved["strategy"]["_target_"]).State
        return Checkpoint(self.folder / "checkpoint", resolved).load(state)[1]

    def _lines(self, name: str) -> list[dict[str, Any]]:
        text = (self.folder / name).read_text()
        return [json.loads(line) for line in text.splitlines()]


Runner = Callable[..., Run]


def app_of(answer: Callable[[Message, Context], Message]) -> ClientApp:
    """Return a client app that answers to all of the server's messages."""
    app = ClientApp()
    for register in (app.query("identify"), app.query(), app.train(), app.evaluate()):
        register(answer)
    return app


def run_command(
    command: Sequence[Any], check: bool = False, **more: Any
) -> subprocess.CompletedProcess[str]:
    """Return what a command said, and how it ended."""
    return subprocess.run(command, capture_output=True, text=True, check=check, **more)


def open_method(folder: Path, *overrides: str) -> Any:
    """Return the method of a configuration, which has one node and has not begun."""
    config = compose_config([*overrides, f"output_dir={folder}"])
    method = locate(config.resolved["strategy"]["_target_"])
    return method(config, Fleet(InProcessGrid([{}]), config), config.timeline)


@cache
def _compose(overrides: tuple[str, ...]) -> RunConfig:
    # Another group's option has settings of its own.
    none = ["drift."] * ("drift=none" in overrides)
    none += ["partition."] * any(each.startswith("partition=") for each in overrides)
    small = [each for each in SMALL if not each.startswith(tuple(none))]
    return compose_config([*small, *overrides])


def _run(overrides: tuple[str, ...], path: Path, grid: InProcessGrid | None) -> Run:
    # Hydra takes a sixth of a second: the same overrides are composed only once.
    config = _compose(overrides)
    config = replace(
        config,
        output_dir=str(path),
        resolved={**config.resolved, "output_dir": str(path)},
        overrides=[*config.overrides, f"output_dir={path}"],
    )
    execute(grid or InProcessGrid(), config, Console(file=io.StringIO()))
    return Run(path)


@pytest.fixture
def run_small(tmp_path: Path) -> Runner:
    """Run a small configuration in process and return its files."""

    def run(
        *overrides: str, folder: str = "run", grid: InProcessGrid | None = None
    ) -> Run:
        return _run(overrides, tmp_path / folder, grid)

    return run


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """Return the files of a small run, which is carried out once for all tests."""

    @cache
    def run(*overrides: str) -> Run:
        return _run(overrides, tmp_path_factory.mktemp("undisturbed") / "run", None)

    return run


class _LateGrid(InProcessGrid):
    """Eleven devices; a twelfth appears with the fifth batch of messages."""

    pushes = 0

    def push_messages(self, messages: Any) -> list[str]:
        self.pushes += 1
        if self.pushes == 5:
            self.add_node({"client-id": 11})
        return super().push_messages(messages)


@pytest.fixture
def late_grid(monkeypatch: pytest.MonkeyPatch) -> InProcessGrid:
    """Return a grid of devices 0 to 10 that device 11 joins in the third round."""
    # The server waits at the start for all twelve.
    monkeypatch.setattr("cfl_flower.communication.nodes.JOIN_TIMEOUT", 0.1)
    return _LateGrid([{"client-id": client} for client in range(11)])
