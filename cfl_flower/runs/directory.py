"""The run directory, whose files are the contract of a run."""

from __future__ import annotations

import errno
import json
import logging
import os
import platform
import resource
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import Self
from uuid import uuid4

import yaml
from filelock import FileLock, Timeout

from cfl_flower.environment.files import (
    append_durably,
    remove_leftovers,
    write_atomically,
)
from cfl_flower.errors import CflError, ConfigError, RunFailedError, one_line
from cfl_flower.run_config import RunConfig
from cfl_flower.runs.asked import ASKED
from cfl_flower.runs.checkpoint import Checkpoint
from cfl_flower.runs.console import WATCHED
from cfl_flower.runs.lines import read_lines, read_rounds, read_tests, unbroken
from cfl_flower.runs.output_dir import DATA, check_output_dir, refuse_other_run
from cfl_flower.runs.provenance import code_changes, library_versions
from cfl_flower.runs.record import ClientRow, RoundRecord, client_epochs, device_seconds
from cfl_flower.types import ClientId, Json

log = logging.getLogger(__name__)

LOCK_TIMEOUT = 15.0
"""Seconds to wait for a killed run's processes to release the directory."""

FAILURE = "failure.txt"
"""File with the error of the last attempt, if it failed."""

ROUNDED = 1e-9
"""Differences of means that are of rounding."""

BEST = "checkpoint.best"
"""Folder of the checkpoint with the best value of `system.checkpoint_best`."""

CONCEPTS = "concepts.json"
"""File with the true concept of each simulated client, from each round on."""

PREPROCESSING = "preprocessing.json"
"""File with what makes a network's inputs of a row of a table."""

FAILURES = "failures.log"
"""File with the tracebacks."""

STATES = f"clients/[0-9]*/**/{8 * '[0-9]'}.safetensors"
"""Files of what simulated clients keep, as `ClientState` names them."""

OF_ATTEMPT = (STATES, ASKED, CONCEPTS, DATA, FAILURES, PREPROCESSING)
"""Files that not every run writes anew when it begins."""

RUN = ("python", "-m", "simulations.run")
"""Command that starts a run."""

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a full disk, a spent quota, and a file that may not grow."""


class RunDirectory:
    """Writes a run's files; holds the directory for one process at a time.

    ``token`` identifies the run to devices; a resumed run keeps it. Raises
    `ConfigError` if the directory cannot be written, is in use, or holds a run and
    ``resume`` is false.
    """

    def __init__(self, config: RunConfig) -> None:
        self.path = Path(config.output_dir)
        self._config = config
        self.token = ""
        self.names: Mapping[ClientId, str] = {}
        """Names of devices, which their tests and failures get as `device`."""
        check_output_dir(config)
        self._lock = FileLock(self.path / ".lock", timeout=LOCK_TIMEOUT)

    def __enter__(self) -> Self:
        """Take the lock and write the configuration."""
        try:
            self._lock.acquire()
        except Timeout as error:
            raise ConfigError(
                f"output_dir={self.path} is in use by another run; wait or use another"
            ) from error
        try:
            # The run that held the lock may have ended meanwhile.
            check_output_dir(self._config)
            refuse_other_run(self._config)
        except CflError:
            self._lock.release()
            raise
        with told_if_full(self.path):
            self._begin()
        return self

    def _begin(self) -> None:
        remove_leftovers(self.path)
        # Before the settings: those of another run never go with this one's token.
        name = self.path / ".token"
        if not (self._config.resume and name.exists()):
            # An attempt was here of which no round was finished.
            patterns = OF_ATTEMPT if name.exists() else ()
            for path in [each for of in patterns for each in self.path.glob(of)]:
                path.unlink()
                # Even an empty folder counts as the state of a client.
                with suppress(OSError):
                    os.removedirs(path.parent)
            write_atomically(name, uuid4().hex.encode())
        self.token = name.read_text()
        if watched := os.environ.get(WATCHED):
            self._tell(Path(watched))
        self.write_settings(self._config)
        (self.path / FAILURE).unlink(missing_ok=True)
        if len(read_lines(self.path / "rounds.jsonl")) < self._config.rounds:
            # An existing summary is of fewer rounds.
            (self.path / "summary.json").unlink(missing_ok=True)

    def _tell(self, watched: Path) -> None:
        """Name the run where who is asked for health looks; it runs without, too."""
        try:
            watched.mkdir(exist_ok=True)
            name = str(self.path).encode(errors="replace")
            write_atomically(watched / self.token, name)
        except OSError as error:
            log.warning("--health has no numbers of this run: %s", error)

    def write_settings(self, config: RunConfig) -> None:
        """Write the configuration, of which more may be known than at the start."""
        self._config = config
        command = repeat_command(config.overrides)
        text = yaml.safe_dump(config.resolved, sort_keys=False)
        write_atomically(self.path / "config.yaml", f"# {command}\n{text}".encode())

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        """Write the error of a failed run, and release the lock.

        Raises `RunFailedError` if the disk is full.
        """
        if isinstance(error, Exception):
            reason = " ".join(str(error).split())
            if not isinstance(error, CflError):
                reason = f"{type(error).__name__}: {reason}"
            # On a full disk the line on the terminal has to do.
            with suppress(OSError):
                write_atomically(self.path / FAILURE, f"{one_line(reason)}\n".encode())
        self._lock.release()
        with told_if_full(self.path):
            if isinstance(error, OSError):
                raise error

    def begin(self, samples: str) -> None:
        """Keep what names the samples, with which alone the run may go on."""
        write_atomically(self.path / DATA, samples.encode())

    def write_concepts(self) -> None:
        """Write `concepts.json`: when anything changes, and the true concepts then.

        Reports have them from there, and need none of the classes that draw them. The
        first change that would come after the run is its ``next``, null without one.
        """
        last = self._config.rounds
        timeline = self._config.timeline
        rounds = timeline.shown(last)
        later = next((each for each in timeline.changes if each > last), None)
        concepts = [timeline.concepts(server_round).tolist() for server_round in rounds]
        found = {"rounds": rounds, "next": later, "concepts": concepts}
        write_atomically(self.path / CONCEPTS, json.dumps(found).encode())

    def write_preprocessing(self, preprocessing: dict[str, Json] | None) -> None:
        """Write what makes a network's inputs of a table's row, if data are tables."""
        if preprocessing is None:
            return
        text = json.dumps(preprocessing, indent=1, ensure_ascii=False) + "\n"
        write_atomically(self.path / PREPROCESSING, text.encode())

    def append(self, record: RoundRecord, rows: Iterable[ClientRow]) -> None:
        """Append one round to both files, synced to disk."""
        tests = [row.row() for row in rows]
        line = record.row()
        for each in (*tests, *line["failures"]):
            if name := self.names.get(each["client"]):
                each["device"] = name
        self._append("clients.jsonl", tests)
        self._append("rounds.jsonl", [line])

    def rewind(self, server_round: int) -> None:
        """Remove the lines after a round, torn ones included.

        Raises `ConfigError` if any up to that round is missing or damaged.
        """
        rounds = read_rounds(self.path)[:server_round]
        tests = [row for row in read_tests(self.path) if row["round"] <= server_round]
        found: dict[int, list[float]] = {}
        for row in tests:
            found.setdefault(row["round"], []).append(row["accuracy"])
        with unbroken(self.path / "clients.jsonl"):
            for row in rounds:
                own = found.get(row["round"])
                mean = row["accuracy_mean"]
                if own and (mean is None or abs(fmean(own) - mean) > ROUNDED):
                    wrong = f"round {row['round']} has another accuracy_mean"
                    raise ValueError(f"{wrong} in rounds.jsonl")
        expected = set(range(1, server_round + 1))
        for name, kept in (("rounds.jsonl", rounds), ("clients.jsonl", tests)):
            with unbroken(self.path / name):
                if lost := expected.difference(row["round"] for row in kept):
                    raise ValueError(f"no line of round {min(lost)}")
            lines = "".join(json.dumps(row) + "\n" for row in kept)
            write_atomically(self.path / name, lines.encode())
            # Not every round has tests.
            expected = {row["round"] for row in rounds if row["accuracy"] is not None}

    def write_summary(self, data: str | None = None) -> dict[str, Json]:
        """Write `summary.json` from the rounds on disk, and return it.

        ``data`` is the `Stream.fingerprint` of all clients' data, if known.
        """
        config = self._config
        rounds = read_lines(self.path / "rounds.jsonl")
        tested = [row for row in rounds if row["accuracy"] is not None]
        keys = ("accuracy", "accuracy_mean")
        last = rounds[-1] if rounds else dict.fromkeys(keys)
        usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        unit = 2**20 if platform.system() == "Darwin" else 2**10
        summary: dict[str, Json] = {
            "strategy": config.names["strategy"],
            "dataset": config.names["dataset"],
            "drift": config.names["drift"],
            "data": data,
            "seed": config.seed,
            "rounds": len(rounds),
            "final": {key: last[key] for key in keys},
            "best": {
                key: max((row[key] for row in tested), default=None) for key in keys
            },
            "bytes_up": sum(row["bytes_up"] for row in rounds),
            "bytes_down": sum(row["bytes_down"] for row in rounds),
            "client_epochs": client_epochs(rounds),
            "seconds": round(sum(row["seconds"] for row in rounds), 3),
            "virtual_seconds": device_seconds(rounds, len(rounds)),
            "peak_rss_mb": round(usage / unit, 1),
            "num_clusters": rounds[-1]["num_clusters"] if rounds else None,
            "versions": library_versions(),
            "code_changed_after": code_changes(self.path),
        }
        best = Checkpoint(self.path / BEST, {})
        if (measure := config.system.checkpoint_best) and best.exists():
            number = best.read_header()["round"]
            kept = next((row for row in rounds if row["round"] == number), {})
            summary["checkpoint_best"] = {k: kept.get(k) for k in ("round", measure)}
        rows = self._rows_of(tested[-1]["round"]) if tested else []
        if worst := min(rows, key=itemgetter("accuracy"), default=None):
            summary["worst_client"] = {k: worst[k] for k in ("client", "accuracy")}
        # Only where it was measured, with `privacy=`.
        if rounds and "epsilon" in rounds[-1]:
            summary["epsilon"] = rounds[-1]["epsilon"]
        text = json.dumps(summary, indent=2) + "\n"
        write_atomically(self.path / "summary.json", text.encode())
        return summary

    def _rows_of(self, server_round: int) -> list[dict[str, Json]]:
        """Return the tests of a round, without a look at all others."""
        path = self.path / "clients.jsonl"
        if not path.exists():
            return []
        begin = f'{{"round": {server_round},'
        with path.open(encoding="utf-8") as lines:
            return [json.loads(line) for line in lines if line.startswith(begin)]

    def _append(self, name: str, rows: list[dict[str, Json]]) -> None:
        lines = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)
        append_durably(self.path / name, lines)


@contextmanager
def told_if_full(folder: Path) -> Iterator[None]:
    """Turn the error of a disk that is full into a `RunFailedError`."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        fault = f"nothing more can be written ({error.strerror})"
        remedy = f"make room, and go on by resume=true output_dir={folder}"
        raise RunFailedError(f"{fault}; {remedy}") from error


def repeat_command(overrides: Sequence[str], without: Collection[str] = ()) -> str:
    """Return the shell command that repeats a run.

    The last value of each key counts; ``resume`` and the keys of ``without`` are left
    out.

    Examples
    --------
    >>> repeat_command(["rounds=5", "drift.rounds=[3, 5]", "resume=true", "rounds=9"])
    "python -m simulations.run rounds=9 'drift.rounds=[3, 5]'"
    """
    last = {each.partition("=")[0].lstrip("+"): each for each in overrides}
    kept = [item for key, item in last.items() if key not in ("resume", *without)]
    return shlex.join([*RUN, *kept])
