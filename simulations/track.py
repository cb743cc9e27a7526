"""The track: every method on the same drifting streams, tuned alike, and ranked.

    python -m simulations.track                          # the table of known rows
    python -m simulations.track ifca fielding            # run two methods
    python -m simulations.track my_method strategy.tau=2 --name my_method_2
    python -m simulations.track --all --streams concept label
    python -m simulations.track fedavg --first-seed 100 --name fedavg_again

A method's learning rate is tuned for each stream, on validation samples and one seed,
then its rate of fine-tuning if the protocol has some; then come the track's seeds. Rows
are written below `--output`, as JSON with their provenance, and shown beside those that
come with the project. Runs are kept there as well: the same command resumes what was
interrupted and repeats nothing that is finished. The streams and the protocol are in
simulations/tracking/protocol.yaml. Exit codes as `simulations.run`; 1 also if a method
lacks a stream, with the reason.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from cfl_flower.analysis.saved import SavedRun
from cfl_flower.config.options import list_options
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


@dataclass
class Entry:
    """A method on a stream: its runs so far."""

    method: str
    stream: str
    tuning: dict[float, Job] = field(default_factory=dict)
    """Tuning jobs by learning rate."""
    jobs: list[Job] = field(default_factory=list)
    """Jobs of the track's seeds, once a rate is chosen."""
    rate: float | None = None
    fine_tuning: dict[float, Job] = field(default_factory=dict)
    """By rate of fine-tuning, with the chosen learning rate."""
    fine_tuning_rate: float | None = None
    reason: str = ""
    """Why there is no result."""

    @property
    def label(self) -> str:
        """Its name where it is watched."""
        return f"{self.stream} {self.method}"


@dataclass
class Track(Study):
    """The runs of a protocol, as one command asks for them."""

    protocol: Protocol = field(default_factory=load_protocol)

    def job(
        self, entry: Entry, rate: float, seed: int, fine: float | None = None
    ) -> Job:
        """Compose a run, with a rate of fine-tuning if it has one, or raise an error.

        That is a `ConfigError`.
        """
        stream = self.protocol.streams[entry.stream]
        shared = [*stream.overrides, *self.protocol.overrides]
        shared.append(f"strategy.local.learning_rate={rate}")
        tuned = f"rate{rate:g}"
        if fine is not None:
            shared.append(f"strategy.fine_tuning_rate={fine}")
            tuned += f"-ft{fine:g}"
        folder = self.folder / entry.stream / self.name(entry.method)
        overrides = [
            f"strategy={entry.method}",
            *(each for each in shared if has_setting(entry.method, each)),
            *self.options.settings,
            f"seed={seed}",
        ]
        label = f"{entry.label} {tuned} seed {seed}"
        return self.add(label, folder / f"{tuned}-s{seed}", overrides)

    @property
    def folder(self) -> Path:
        """Where runs of this version are kept."""
        return Path(self.options.output, f"v{self.protocol.version}")

    def name(self, method: str) -> str:
        """Return the name of a method's row."""
        return str(self.options.name or method)

    def overrides(self, method: str) -> list[str]:
        """Return what a method's row changes beyond the protocol."""
        return [f"strategy={method}", *self.options.settings]

    def require_same(self, method: str) -> None:
        """Refuse a row that exists and is of other settings or seeds."""
        path = row_path(self.folder / "rows", self.name(method))
        if not path.exists():
            return
        row = read_row(path, self.protocol)
        first = self.options.first_seed
        if row.overrides != self.overrides(method) or row.first_seed != first:
            what = " ".join(row.overrides)
            raise ConfigError(
                f"{path} is of {what} from seed {row.first_seed} on; use another --name"
            )

    def compose(self, entry: Entry) -> None:
        """Compose the runs that tune a method, or note why it has none here."""
        try:
            for rate in self.protocol.rates:
                seed = self.protocol.tuning_seed
                entry.tuning[rate] = self.job(entry, rate, seed)
        except ConfigError as error:
            entry.reason = one_line(str(error))

    def choose(self, entry: Entry) -> None:
        """Choose the learning rate, and compose the runs that tune fine-tuning."""
        if entry.reason:
            return
        entry.rate = best_of(entry.tuning)
        if entry.rate is None:
            entry.reason = "no run finished with any of the learning rates"
        elif entry.tuning[entry.rate].config.strategy.fine_tuning:
            for fine in self.protocol.fine_tuning_rates:
                job = self.job(entry, entry.rate, self.protocol.tuning_seed, fine)
                entry.fine_tuning[fine] = job

    def compose_seeds(self, entry: Entry) -> None:
        """Choose the rate of fine-tuning, and compose the runs of the track's seeds."""
        if entry.rate is None:
            return
        entry.fine_tuning_rate = best_of(entry.fine_tuning)
        first = self.options.first_seed
        for seed in range(first, first + self.protocol.seeds):
            job = self.job(entry, entry.rate, seed, entry.fine_tuning_rate)
            entry.jobs.append(job)

    def result(self, entry: Entry) -> StreamResult | None:
        """Return what a method reached; None, and the reason, if a seed has no run."""
        if entry.reason or entry.rate is None:
            return None
        runs = read(entry.jobs)
        if len(runs) < len(entry.jobs):
            entry.reason = f"{len(entry.jobs) - len(runs)} of its seeds failed"
            return None
        measure = self.protocol.streams[entry.stream].measure
        tuning = [*entry.tuning.values(), *entry.fine_tuning.values()]
        every = [*runs, *read(tuning)]
        return StreamResult(
            rate=entry.rate,
            tuning={f"{r:g}": _rounded(s) for r, s in validation(entry.tuning).items()},
            fine_tuning_rate=entry.fine_tuning_rate,
            scores=[round(mean_of(run, measure), 5) for run in runs],
            megabytes=[round(_megabytes(run), 3) for run in runs],
            device_hours=[_hours(run) for run in runs],
            client_epochs=[run.summary.get("client_epochs") for run in runs],
            seconds=round(sum(run.summary["seconds"] for run in every), 1),
            code=codes_of(runs),
        )


def validation(jobs: Mapping[float, Job]) -> dict[float, float | None]:
    """Return the mean validation accuracy by rate; None for a failed run."""
    runs = {rate: read([job]) for rate, job in jobs.items()}
    return {r: mean_of(run[0], VALIDATION) if run else None for r, run in runs.items()}


def best_of(jobs: Mapping[float, Job]) -> float | None:
    """Return the rate of the best validation accuracy, of equal ones the smallest."""
    known = {rate: s for rate, s in validation(jobs).items() if s is not None}
    return max(sorted(known), key=known.__getitem__, default=None)


def mean_of(run: SavedRun, key: str) -> float:
    """Return the mean of a number over the rounds that have it."""
    return fmean(row[key] for row in run.rounds if row.get(key) is not None)


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
    words = "methods, and settings of them such as strategy.threshold=0.3"
    add("words", nargs="*", metavar="METHOD", help=words)
    add("--all", action="store_true", help="all methods that there are")
    add("--streams", nargs="+", default=list(protocol.streams), metavar="STREAM")
    add("--name", help="of the row, if it is not the method's")
    add("--first-seed", type=int, default=0, metavar="N", help="of the track's seeds")
    add("--output", type=Path, default=Path("outputs/track"))
    add_data(parser)
    parser.add_many_runs()
    options = parser.parse_intermixed_args(list(arguments))
    options.settings = [word for word in options.words if "=" in word]
    options.methods = [word for word in options.words if "=" not in word]
    known = list_options("strategy")
    if options.all:
        options.methods = known
    for stream in options.streams:
        names = ", ".join(protocol.streams)
        require(stream in protocol.streams, "--streams", stream, f"one of {names}")
    for method in options.methods:
        require(method in known, "METHOD", method, f"one of {', '.join(known)}")
    alone = len(options.methods) == 1
    require(alone or not options.name, "--name", options.name, "with one method")
    require(alone or not options.settings, "METHOD", options.settings, "one method")
    as_usual = not options.settings and not options.first_seed
    words = "a name for a row of other settings or seeds"
    require(bool(options.name or as_usual), "--name", options.name, words)
    require(options.first_seed >= 0, "--first-seed", options.first_seed, "at least 0")
    return options


def run_track(track: Track) -> list[Entry]:
    """Carry out what is not finished; return each method on each stream."""
    options = track.options
    for method in options.methods:
        track.require_same(method)
    entries = [
        Entry(method, stream)
        for method in options.methods
        for stream in options.streams
    ]
    for entry in entries:
        track.compose(entry)
    track.carry_out([job for e in entries for job in e.tuning.values()], "tune")
    for entry in entries:
        track.choose(entry)
    fine = [job for e in entries for job in e.fine_tuning.values()]
    track.carry_out(fine, "tune fine-tuning")
    for entry in entries:
        track.compose_seeds(entry)
    track.carry_out([job for e in entries for job in e.jobs], "track")
    return entries


def make_rows(track: Track, entries: Sequence[Entry]) -> dict[str, TrackRow]:
    """Write the rows of methods that have a result; return them by name."""
    provenance = {"commit": commit(), **library_versions()}
    found: dict[str, TrackRow] = {}
    for entry in entries:
        result = track.result(entry)
        if result is None:
            continue
        name = track.name(entry.method)
        overrides = track.overrides(entry.method)
        version = track.protocol.version
        first = track.options.first_seed
        new = TrackRow(name, version, overrides, provenance, first)
        row = found.setdefault(name, new)
        row.streams[entry.stream] = result
    for row in found.values():
        write_row(row, track.folder / "rows", track.protocol)
    return found


def known_rows(track: Track) -> Mapping[str, TrackRow]:
    """Return the rows that come with the project, and those of one's own."""
    rows = read_rows(ROWS, track.protocol)
    own = read_rows(track.folder / "rows", track.protocol)
    return {**rows, **own}


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
