"""The track: every method on the same drifting streams, tuned alike, and ranked.

    python -m simulations.track                          # the table of known rows
    python -m simulations.track ifca fielding            # run two methods
    python -m simulations.track my_method strategy.tau=2 --name my_method_2
    python -m simulations.track ifca_ls ifca_ft    # with label shares, fine-tuning
    python -m simulations.track ifca_un            # models chosen without labels
    python -m simulations.track ifca_all           # all clients in every round
    python -m simulations.track --all --streams concept label

A method's learning rate is tuned for each stream, on validation samples and one seed,
then its fine-tuning if it has some; then come the track's seeds. Rows are written below
`--output`, as JSON with their provenance, and shown beside those that come with the
project. Runs are kept there as well: the same command resumes what was interrupted and
repeats nothing that is finished. The streams and the protocol are in
simulations/tracking/protocol.yaml. Exit codes as `simulations.run`; 1 also if a method
lacks a stream, with the reason.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, product
from pathlib import Path
from statistics import fmean

from cfl_flower.analysis.saved import SavedRun
from cfl_flower.environment.code_version import commit
from cfl_flower.errors import ConfigError, one_line
from cfl_flower.runs.console import make_console
from cfl_flower.runs.provenance import library_versions, read_provenance
from cfl_flower.runs.record import device_seconds
from cfl_flower.settings import require
from simulations.batch.jobs import Job
from simulations.shell.terminal import Parser, command, make_error_console
from simulations.study import Study, add_data, has_setting, read
from simulations.tracking.rows import (
    ROWS,
    Protocol,
    StreamResult,
    TrackRow,
    load_protocol,
    read_row,
    read_rows,
    row_path,
    write_row,
)
from simulations.tracking.table import show

VALIDATION = "validation_accuracy"
"""Measure of a round by which the learning rate is chosen."""

UNLABELLED = "accuracy_unlabelled"

OF_METHODS = ("strategy.", "server_optimizer", "selection")
"""How settings begin that a row may change; all others are the streams'."""

TUNED = ("strategy.local.learning_rate", "strategy.fine_tuning_rate")


Choice = tuple[float, str]
"""A learning rate, and a way of fine-tuning, empty without any."""


@dataclass
class Entry:
    """A row on a stream: its runs so far."""

    row: str
    stream: str
    ways: list[str] = field(default_factory=lambda: [""])
    """Of fine-tuning, one that is empty for a method without any."""
    tuning: dict[Choice, Job] = field(default_factory=dict)
    jobs: list[Job] = field(default_factory=list)
    """Jobs of the track's seeds, once there is a choice."""
    choice: Choice | None = None
    reason: str = ""
    """Why there is no result."""

    @property
    def label(self) -> str:
        """Its name where it is watched."""
        return f"{self.stream} {self.row}"


@dataclass
class Track(Study):
    """The runs of a protocol, as one command asks for them."""

    protocol: Protocol = field(default_factory=load_protocol)

    def job(self, entry: Entry, choice: Choice, seed: int) -> Job:
        """Compose a run, or raise a `ConfigError`."""
        rate, way = choice
        stream = self.protocol.streams[entry.stream]
        shared = [*self.protocol.overrides, *stream.overrides]
        shared.append(f"strategy.local.learning_rate={rate}")
        method, *settings = self.overrides(entry.row)
        name = method.removeprefix("strategy=")
        overrides = [
            method,
            *(each for each in shared if has_setting(name, each)),
            *settings,
            *self.protocol.fine_tunings.get(way, ()),
            f"seed={stream.seed + seed}",
        ]
        tried = say_choice(choice)
        folder = self.folder / entry.stream / self.name(entry.row)
        path = folder / f"{tried.replace(' ', '-')}-s{seed}"
        return self.add(f"{entry.label} {tried} seed {seed}", path, overrides)

    @property
    def folder(self) -> Path:
        """Where runs of this version are kept."""
        return Path(self.options.output, f"v{self.protocol.version}")

    def name(self, row: str) -> str:
        """Return how a row is called."""
        return str(self.options.name or row)

    def has(self, row: str, stream: str) -> bool:
        """Return whether a row is asked for on a stream.

        Without labels only those are that choose a model by inputs, or have one.
        """
        known = chain(*self.protocol.rows(stream).values())
        unlabelled = self.protocol.streams[stream].measure == UNLABELLED
        return row in known or not (self.options.all or unlabelled)

    def overrides(self, row: str) -> list[str]:
        """Return what a row changes beyond the protocol, the method first."""
        return [*self.protocol.method(row), *self.options.settings]

    def require_same(self, method: str) -> None:
        """Refuse a row that exists and is of other settings."""
        for folder in (self.folder / "rows", ROWS):
            path = row_path(folder, self.name(method))
            row = read_row(path, self.protocol) if path.exists() else None
            if row is not None and row.overrides != self.overrides(method):
                told = " ".join(row.overrides)
                raise ConfigError(f"{path} is of {told}; use another --name")

    def tune(self, entry: Entry, choices: Iterable[Choice]) -> None:
        """Compose the tuning's runs with some choices."""
        for choice in choices:
            entry.tuning[choice] = self.job(entry, choice, self.protocol.tuning_seed)

    def compose(self, entry: Entry) -> list[Job]:
        """Return the runs that tune the learning rate, or note why it has none."""
        protocol = self.protocol
        try:
            plain = self.job(entry, (protocol.rates[0], ""), protocol.tuning_seed)
            if plain.config.strategy.fine_tuning and protocol.fine_tunings:
                entry.ways = [*protocol.fine_tunings]
            self.tune(entry, product(protocol.rates, entry.ways[:1]))
        except ConfigError as error:
            entry.reason = one_line(str(error))
        return [*entry.tuning.values()]

    def compose_ways(self, entry: Entry) -> list[Job]:
        """Choose the learning rate; return these runs and those of fine-tuning."""
        if best := best_of(entry.tuning):
            self.tune(entry, product(best[:1], entry.ways))
        elif not entry.reason:
            entry.reason = "no run finished with any of the learning rates"
        return [*entry.tuning.values()]

    def compose_seeds(self, entry: Entry) -> list[Job]:
        """Choose, and return the runs of the track's seeds."""
        if choice := best_of(entry.tuning):
            entry.choice = choice
            seeds = range(self.protocol.seeds)
            entry.jobs = [self.job(entry, choice, seed) for seed in seeds]
        return entry.jobs

    def result(self, entry: Entry) -> StreamResult | None:
        """Return what a method reached; None, and the reason, if a seed has no run."""
        if entry.reason or entry.choice is None:
            return None
        runs = read(entry.jobs)
        if len(runs) < len(entry.jobs):
            entry.reason = f"{len(entry.jobs) - len(runs)} of its seeds failed"
            return None
        measure = self.protocol.streams[entry.stream].measure
        every = [*runs, *read(entry.tuning.values())]
        (best,) = read([entry.tuning[entry.choice]])
        tried = validation(entry.tuning)
        return StreamResult(
            rate=entry.choice[0],
            tuning={say_choice(each): _rounded(s) for each, s in tried.items()},
            fine_tuning=entry.choice[1] or None,
            scores=[round(mean_of(run, measure), 5) for run in runs],
            last=[round(measured(run, measure)[-1], 5) for run in runs],
            megabytes=[round(_megabytes(run), 3) for run in runs],
            device_hours=[_hours(run) for run in runs],
            client_epochs=[run.summary["client_epochs"] for run in runs],
            tuned=round(mean_of(best, measure), 5),
            seconds=round(sum(run.summary["seconds"] for run in every), 1),
            code=codes_of(runs),
        )


def say_choice(choice: Choice) -> str:
    """Write what is tried, such as ``0.1 short``."""
    rate, way = choice
    return f"{rate:g} {way}".strip()


def validation(jobs: Mapping[Choice, Job]) -> dict[Choice, float | None]:
    """Return the mean validation accuracy by choice; None for a failed run."""
    runs = {choice: read([job]) for choice, job in jobs.items()}
    return {c: mean_of(run[0], VALIDATION) if run else None for c, run in runs.items()}


def best_of(jobs: Mapping[Choice, Job]) -> Choice | None:
    """Return the choice of the best validation accuracy, of equal ones the first."""
    known = {each: s for each, s in validation(jobs).items() if s is not None}
    return max(known, key=known.__getitem__, default=None)


def mean_of(run: SavedRun, key: str) -> float:
    """Return the mean of a number over the rounds that have it."""
    return fmean(measured(run, key))


def measured(run: SavedRun, key: str) -> list[float]:
    """Return a number of the rounds that have it.

    Where a method chooses no model without labels, that is the accuracy.
    """
    usual = "accuracy" if key == UNLABELLED else key
    tested = (row for row in run.rounds if row.get(usual) is not None)
    return [row.get(key, row[usual]) for row in tested]


def codes_of(runs: Sequence[SavedRun]) -> list[str]:
    """Return the digests of the code by which runs were made, in their parts."""
    entries = (each for run in runs for each in read_provenance(run.folder))
    return sorted({str(each["code"]) for each in entries})


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 5)


def _megabytes(run: SavedRun) -> float:
    sent = sum(row["bytes_up"] + row["bytes_down"] for row in run.rounds)
    return float(sent) / 1e6


def _hours(run: SavedRun) -> float | None:
    seconds = device_seconds(run.rounds, run.rounds[-1]["round"])
    return None if seconds is None else round(seconds / 3600, 4)


def parse(arguments: Sequence[str], protocol: Protocol) -> argparse.Namespace:
    """Read the command line, or raise a `ConfigError`."""
    parser = Parser("track", __doc__)
    add = parser.add_argument
    words = "methods, perhaps with _ls, _ft, _un or _all, and settings of them"
    add("words", nargs="*", metavar="METHOD", help=words)
    add("--all", action="store_true", help="all rows of the protocol")
    add("--streams", nargs="+", default=list(protocol.streams), metavar="STREAM")
    add("--name", help="of the row, if it is not the method's")
    add("--output", type=Path, default=Path("outputs/track"))
    add_data(parser)
    parser.add_many_runs()
    options = parser.parse_intermixed_args(list(arguments))
    options.settings = [word for word in options.words if "=" in word]
    options.methods = [word for word in options.words if "=" not in word]
    if options.all:
        every = (protocol.rows(name).values() for name in options.streams)
        options.methods = [*dict.fromkeys(chain(*chain(*every)))]
    for stream in options.streams:
        names = ", ".join(protocol.streams)
        require(stream in protocol.streams, "--streams", stream, f"one of {names}")
    for row in options.methods:
        protocol.method(row)
    for word in options.settings:
        key = word.partition("=")[0].lstrip("+").replace("/", ".")
        words = f"settings of {', '.join(OF_METHODS)} that the track does not tune"
        ok = key.startswith(OF_METHODS) and key not in TUNED
        require(ok, "METHOD", word, words)
    name = options.name
    ok = name is None or bool(re.fullmatch(r"\w[\w.-]*", name))
    require(ok, "--name", name, "letters, digits and _, . or -")
    alone = len(options.methods) == 1
    require(alone or not name, "--name", name, "with one method")
    require(alone or not options.settings, "METHOD", options.settings, "one method")
    require(bool(name or not options.settings), "--name", name, "a name of its own")
    return options


def run_track(track: Track) -> list[Entry]:
    """Carry out what is not finished; return each method on each stream."""
    options = track.options
    for row in options.methods:
        track.require_same(row)
    pairs = product(options.methods, options.streams)
    entries = [Entry(*pair) for pair in pairs if track.has(*pair)]
    track.carry_out([*chain(*map(track.compose, entries))], "tune")
    track.carry_out([*chain(*map(track.compose_ways, entries))], "tune fine-tuning")
    track.carry_out([*chain(*map(track.compose_seeds, entries))], "track")
    return entries


def make_rows(track: Track, entries: Sequence[Entry]) -> dict[str, TrackRow]:
    """Write the rows of methods that have a result; return them by name."""
    provenance = {"commit": commit(), **library_versions()}
    found: dict[str, TrackRow] = {}
    version = track.protocol.version
    for entry in entries:
        if (result := track.result(entry)) is None:
            continue
        name = track.name(entry.row)
        overrides = track.overrides(entry.row)
        new = TrackRow(name, version, overrides, provenance)
        found.setdefault(name, new).streams[entry.stream] = result
    for row in found.values():
        write_row(row, track.folder / "rows", track.protocol)
    return found


def known_rows(track: Track) -> Mapping[str, TrackRow]:
    """Return the rows that come with the project, and those of one's own."""
    rows = read_rows(ROWS, track.protocol)
    for name, own in read_rows(track.folder / "rows", track.protocol).items():
        known = rows[name].streams if name in rows else {}
        rows[name] = replace(own, streams={**known, **own.streams})
    return rows


@command
def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit code."""
    protocol = load_protocol()
    options = parse(arguments, protocol)
    track = Track(options, protocol=protocol)
    entries = run_track(track)
    make_rows(track, entries)
    rows = known_rows(track)
    show(rows, protocol, make_console(), options.markdown)
    console = make_error_console()
    missing = [entry for entry in entries if entry.reason]
    for entry in missing:
        line = f"{entry.label}: no result: {entry.reason}"
        console.print(line, style="yellow", markup=False, soft_wrap=True)
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
