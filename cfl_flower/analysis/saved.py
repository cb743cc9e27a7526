"""A run as it lies on disk: what tables, reports and pictures are made from."""

from __future__ import annotations

import json
import shlex
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cfl_flower.building import build, locate
from cfl_flower.config.overrides import first_line, quoted
from cfl_flower.engine.method import ClusteredStrategy
from cfl_flower.errors import CflError, ConfigError, one_line, printable
from cfl_flower.run_config import RunConfig
from cfl_flower.runs.checkpoint import Checkpoint
from cfl_flower.runs.directory import CONCEPTS, FAILURE, RUN, repeat_command
from cfl_flower.runs.lines import read_rounds, read_tests, unbroken
from cfl_flower.runs.provenance import read_provenance
from cfl_flower.runs.reading import (
    finished,
    read_settings,
    read_summary,
    refuse_links_out,
)
from cfl_flower.runs.record import RunLines
from cfl_flower.state import ClusteredState
from cfl_flower.types import ClientId, FloatArray, IntArray, Json, client_order

UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, OverflowError)
"""Errors that damaged files lead to."""

LARGEST_RUN = 10**7
"""Most clients, and most rounds, of a run that is read: more would fill the memory."""


@dataclass(frozen=True)
class SavedRun:
    """The files of a run directory, finished or not."""

    folder: Path
    overrides: Sequence[str]
    """The user's overrides."""
    resolved: Mapping[str, Json]
    """The resolved configuration."""
    rounds: RunLines
    """The lines of `rounds.jsonl`, at least one unless the run failed."""
    tests: RunLines
    """The lines of `clients.jsonl`, of these rounds."""
    summary: Mapping[str, Json] = field(default_factory=dict)
    """Content of `summary.json`; empty for an unfinished run."""
    failure: str = ""
    """Why the last attempt failed, if it did."""
    agreed: Sequence[Json] = ()
    """What the clients agreed on before the first round: `dataset.agreed`."""

    @property
    def data(self) -> str | None:
        """The fingerprint of all clients' data, if known."""
        return self.summary.get("data")

    @property
    def strategy(self) -> str:
        """The method's name."""
        return printable(str(self.resolved["strategy"]["name"]))

    @property
    def method(self) -> type[ClusteredStrategy]:
        """The method itself; a `ConfigError` if what its files name is none."""
        path = self.resolved["strategy"]["_target_"]
        found = locate(path)
        if not (isinstance(found, type) and issubclass(found, ClusteredStrategy)):
            fault = f"{self.folder} is of strategy._target_={path}, which is no method"
            raise ConfigError(f"{fault}; its files are damaged")
        return found

    @property
    def command(self) -> str:
        """What trains it once more, into a new folder, whatever lies in this one."""
        return repeat_command(self.overrides, ["output_dir"])

    @property
    def made_by(self) -> str:
        """The version of this project that made it, with its commit, if known."""
        entries = read_provenance(self.folder)
        if not entries:
            return "an earlier version of cfl-flower"
        last = entries[-1]
        name = f"code {last.get('code')}"
        if last.get("commit"):
            name = f"commit {last['commit']}"
        return f"cfl-flower {last.get('version')} ({name})"

    @property
    def command_to_go_on(self) -> str:
        """What goes on with it, if it is not finished."""
        place = f"output_dir={quoted(str(self.folder.absolute()))}"
        return f"{self.command} {shlex.join([place, 'resume=true'])}"

    def common_models(self) -> str:
        """Say what the models that the server keeps are to the clients.

        A `ConfigError` says what they lack for use, as it stays at the clients.
        """
        (settings,) = self.build("strategy")
        published = self.method.published
        if published.incomplete:
            raise ConfigError(
                f"a run of strategy={self.strategy} has no common model that can be "
                f"served: {published.incomplete}; name a run with common models, such "
                "as one of strategy=fielding or fedavg"
            )
        found = published.models
        if settings.fine_tuning:
            found += ", which each client fine-tunes"
        if settings.label_shares:
            found += ", to whose outputs each client adds its label shares"
        return found

    def build(self, *groups: str) -> list[Any]:
        """Return the settings of some groups as objects."""
        settings = {**self.resolved}
        if self.agreed:
            settings["dataset"] = {**settings["dataset"], "agreed": self.agreed}
        return [build(settings[group]) for group in groups]

    @property
    def checkpoint(self) -> Checkpoint:
        """Its last checkpoint."""
        return Checkpoint(self.folder / "checkpoint", self.resolved)

    def load_state(self) -> tuple[int, ClusteredState]:
        """Return the last saved round and the strategy's own state after it.

        What is torn, or of another run, is a `CheckpointError`.
        """
        return self.checkpoint.load(self.method.State)

    @property
    def on_own_data(self) -> bool:
        """Whether the clients were devices with folders of their own."""
        return not (self.folder / CONCEPTS).is_file()

    @property
    def complete(self) -> bool:
        """Whether all rounds of the configuration are there."""
        return len(self.rounds) >= int(self.resolved["rounds"])

    def series(self, key: str) -> tuple[IntArray, FloatArray]:
        """Return the rounds in which a number was measured, and the numbers."""
        known = [row for row in self.rounds if row.get(key) is not None]
        rounds = np.array([row["round"] for row in known], np.int64)
        return rounds, np.array([row[key] for row in known], float)

    @cached_property
    def _known(self) -> tuple[list[int], IntArray, list[int]]:
        """What `concepts.json` has: rounds, and each client's concept from them on.

        The latter of shape (rounds, clients), and the first change after the run, if
        there is one. Devices with folders of their own have one concept.
        """
        path = self.folder / CONCEPTS
        count = int(self.resolved["clients"])
        if self.on_own_data:
            return [1], np.zeros((1, count), np.int64), []
        with unbroken(path):
            found = json.loads(path.read_text(encoding="utf-8"))
            rounds = [int(server_round) for server_round in found["rounds"]]
            if rounds != sorted({1, *rounds}):
                raise ValueError(f"rounds are {rounds}, not from 1 on in order")
            concepts = np.array(found["concepts"], np.int64)
            if concepts.shape != (len(rounds), count):
                raise ValueError(f"concepts are of shape {concepts.shape}")
            later = [int(found["next"])] if found["next"] else []
        return rounds, concepts, later

    def concepts(self) -> IntArray:
        """Return the true concept of each tested client in each round.

        Shape (clients, rounds).
        """
        rounds = range(1, int(self.rounds[-1]["round"]) + 1)
        numbers = [int(client) for client in self.clients]
        if max(numbers, default=0) >= int(self.resolved["clients"]):
            raise ConfigError(
                f"{self.folder} has tests of client {max(numbers)}, but "
                f"clients={self.resolved['clients']}; its files are damaged"
            )
        begins, concepts, _ = self._known
        periods = [bisect_right(begins, server_round) - 1 for server_round in rounds]
        return concepts[np.ix_(periods, numbers)].T

    def tested_concepts(self) -> dict[ClientId, list[int]]:
        """Return the true concept that each client is tested on in each round.

        Without that of a last test on the round after the run.
        """
        ahead = self.resolved["evaluation"] == "prequential"
        concepts = self.concepts()[:, 1 if ahead else 0 :]
        return dict(zip(self.clients, concepts.tolist(), strict=True))

    @property
    def changes(self) -> list[int]:
        """The rounds at whose start events begin, and the first after the last."""
        begins, _, later = self._known
        starts = set[int]()
        steps = set[int]()
        # Not built: a report imports no class of the user's own.
        events = [self.resolved["drift"]]
        for event in events:
            events += event.get("steps", {}).values()
            times = set(event.get("rounds", []))
            if every := event.get("every"):
                times.update(range(event["first"], self.resolved["rounds"] + 2, every))
            starts |= times
            steps |= {at + k for at in times for k in range(1, event.get("width", 1))}
        # A gradual event is one, in the round of its first step.
        return [at for at in (*begins[1:], *later) if at not in steps - starts]

    @property
    def drifts(self) -> list[int]:
        """The rounds at whose start the data changed, of those that are done."""
        return [each for each in self.changes if each <= len(self.rounds)]

    @property
    def tested_drifts(self) -> list[int]:
        """The rounds whose tests are the first on changed data, of `drifts`."""
        early = self.resolved["evaluation"] == "prequential"
        return [each - early for each in self.drifts]

    @cached_property
    def clients(self) -> list[ClientId]:
        """All clients that were ever tested, in client-id order."""
        return sorted({row["client"] for row in self.tests}, key=client_order)

    def table(self, key: str) -> FloatArray:
        """Return a number of each client in each round, NaN where it was not tested.

        Shape (clients, rounds).
        """
        place = {client: row for row, client in enumerate(self.clients)}
        found = np.full((len(place), int(self.rounds[-1]["round"])), np.nan)
        for row in self.tests:
            found[place[row["client"]], row["round"] - 1] = row[key]
        return found


def load_run(folder: Path) -> SavedRun:
    """Read a run directory.

    Raises
    ------
    ConfigError
        If it holds no run, one that neither finished a round nor failed, or files that
        cannot be read.
    """
    path = folder / "config.yaml"
    refuse_links_out(folder)
    rounds = read_rounds(folder)
    summary = _read_summary(folder, rounds)
    failure = one_line(_read(folder / FAILURE).strip())
    if not path.is_file() or not (rounds or failure):
        raise ConfigError(
            f"{folder} holds no run with a finished round; name the output_dir of a run"
        )
    config = read_settings(path)
    # It follows from the data, and is no setting in which runs differ.
    agreed = config["dataset"].pop("agreed", ())
    tests = _read_tests(folder, rounds)
    try:
        command = shlex.split(_read(path).partition("\n")[0].removeprefix("# "))
        overrides = command[len(RUN) :]
        run = SavedRun(
            folder, overrides, config, rounds, tests, summary, failure, agreed
        )
        if max(int(config["clients"]), int(config["rounds"])) > LARGEST_RUN:
            raise ConfigError(f"more than {LARGEST_RUN} clients or rounds")
        # Reads the concepts: what makes no sense raises here.
        _ = run.drifts
    except (*UNREADABLE, CflError) as error:
        why = f"{type(error).__name__}: {first_line(error)}"
        said = f"{folder} cannot be read ({why}); it may be of another version"
        raise ConfigError(said) from error
    return run


def read_finished(config: RunConfig) -> SavedRun | None:
    """Read a run; None if it is not finished.

    Raises `ConfigError` if its files are damaged or contradict each other.
    """
    return load_run(Path(config.output_dir)) if finished(config) else None


def _read_summary(folder: Path, rounds: RunLines) -> Mapping[str, Json]:
    """Return the summary of a run if it is complete, with all of its rounds."""
    if not (folder / "summary.json").is_file():
        return {}
    summary = read_summary(folder)
    with unbroken(folder / "rounds.jsonl"):
        if len(rounds) != (told := summary["rounds"]):
            raise ValueError(f"{len(rounds)} rounds, but {told} by summary.json")
    return summary


def _read_tests(folder: Path, rounds: RunLines) -> RunLines:
    """Return the tests of all rounds that are done."""
    done = {row["round"] for row in rounds}
    # Killed between the two files, a run has tests of a round that is not done.
    tests = [row for row in read_tests(folder) if row["round"] in done]
    tested = {row["round"] for row in rounds if row["accuracy"] is not None}
    with unbroken(folder / "clients.jsonl"):
        if lost := tested.difference(row["round"] for row in tests):
            raise ValueError(f"no line of round {min(lost)}")
    return tests


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def find_runs(folder: Path) -> list[Path]:
    """Return the runs of a folder: itself, or those below it that have begun.

    A folder without any is returned itself, for `load_run` to complain of.
    """
    if (folder / "config.yaml").is_file():
        return [folder]
    below = sorted(path.parent for path in folder.rglob("config.yaml"))
    signs = ("rounds.jsonl", FAILURE)
    begun = [path for path in below if any((path / each).exists() for each in signs)]
    return begun or [folder]
