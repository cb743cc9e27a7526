"""The track's protocol (protocol.yaml), and its rows.

A row is a JSON file for each method, with its provenance.
"""

from __future__ import annotations

import json
from dataclasses import asdict, field, replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import yaml
from pydantic import TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from cfl_flower.config.options import list_options
from cfl_flower.environment.files import write_atomically
from cfl_flower.errors import ConfigError
from cfl_flower.settings import Count, Fraction, NonNegative, Positive, require
from simulations.papers.published import KNOWN_KEYS, Overrides

PROTOCOL = Path(__file__).with_name("protocol.yaml")
SHARED = ("all_labels", "two_labels", "regroup", "even")
"""Keys of overrides that several streams name."""

Measure = Literal["accuracy", "accuracy_newcomers", "accuracy_unlabelled"]


@dataclass(frozen=True, config=KNOWN_KEYS)
class TrackStream:
    """Data that change, the same for all methods of a seed."""

    title: str
    seed: int
    """Added to the seeds of all runs, so that streams are independent."""
    overrides: Overrides
    measure: Measure = "accuracy"
    """Measure whose mean over the rounds that have it is a run's score; the accuracy
    if none has."""
    methods: dict[str, Overrides] = field(default_factory=dict)
    """The rows of ``--all`` by kind, if they are not those of the protocol."""
    ranked: bool = True
    """Whether it counts in the ranks."""


@dataclass(frozen=True, config=KNOWN_KEYS)
class Protocol:
    """How every method is run."""

    version: Count
    rates: list[Positive]
    """The learning rates of which each method has its best on each stream."""
    tuning_seed: int
    seeds: Count
    overrides: Overrides
    streams: dict[str, TrackStream] = field(default_factory=dict)
    fine_tunings: dict[str, Overrides] = field(default_factory=dict)
    """Ways of fine-tuning, where a method has some: each learning rate is tried with
    the first, and the best with all."""
    uses: dict[str, Overrides] = field(default_factory=dict)
    """Overrides of a method by the end of a row's name, such as ``ls``."""
    methods: dict[str, Overrides] = field(default_factory=dict)
    """The rows of ``--all``: ``without`` clusters, with ``clusters``, and the
    ``bound``, with the true ones; ``all_`` stands before a kind of which all clients
    train in every round."""
    trained: list[str] = field(default_factory=list)
    """Rows without fine-tuning whose clients must train before they are served well."""

    @property
    def ranked(self) -> list[str]:
        """The streams that count in the ranks."""
        return [name for name, each in self.streams.items() if each.ranked]

    def rows(self, stream: str) -> dict[str, list[str]]:
        """Return the rows of a stream by kind."""
        return self.streams[stream].methods or self.methods

    def method(self, row: str) -> list[str]:
        """Return the overrides of a row by its name.

        That is a method, or one and a use.
        """
        known = list_options("strategy")
        name, _, use = row.rpartition("_")
        if row not in known and name in known and use in self.uses:
            return [f"strategy={name}", *self.uses[use]]
        ends = ", ".join(f"_{each}" for each in self.uses)
        allowed = f"one of {', '.join(known)}; {ends or 'nothing'} may follow"
        require(row in known, "METHOD", row, allowed)
        return [f"strategy={row}"]


@cache
def load_protocol() -> Protocol:
    """Read the track's protocol."""
    raw: dict[str, Any] = yaml.safe_load(PROTOCOL.read_text(encoding="utf-8"))
    parts = {key: raw[key] for key in raw if key not in SHARED}
    return Protocol(**parts)


ROWS = Path(__file__).with_name("rows")
"""The rows that come with the project."""


@dataclass(frozen=True, config=KNOWN_KEYS)
class StreamResult:
    """What a method reached on a stream; lists have an entry for each seed."""

    rate: Positive
    """The learning rate that was chosen."""
    tuning: dict[str, Fraction | None]
    """The validation accuracy by what was tried; None where the run failed."""
    scores: list[Fraction]
    """The stream's measure, the mean over all tested rounds."""
    megabytes: list[NonNegative]
    """Sent up and down."""
    device_hours: list[NonNegative | None]
    """Simulated time of the devices, where it is known."""
    seconds: NonNegative
    """Seconds of all of its runs here, tuning included."""
    code: list[str]
    """Digests of this project's code by which the seeds' runs were made."""
    client_epochs: list[NonNegative]
    """What the clients computed."""
    last: list[Fraction]
    """The stream's measure in the last test."""
    tuned: Fraction
    """The stream's measure in the tuning's run with what was chosen."""
    fine_tuning: str | None = None
    """The way that was chosen, if any were tried."""

    @property
    def mean(self) -> float:
        """The mean score."""
        return fmean(self.scores)


@dataclass(frozen=True, config=KNOWN_KEYS)
class TrackRow:
    """A method on the track."""

    name: str
    version: int
    """Version of the protocol."""
    overrides: list[str]
    """Overrides beyond the protocol, the strategy included."""
    provenance: dict[str, str | None]
    """The commit and the versions that wrote the row."""
    streams: dict[str, StreamResult] = field(default_factory=dict)


ROW = TypeAdapter(TrackRow)


def read_row(path: Path, protocol: Protocol) -> TrackRow:
    """Read a row, or raise a `ConfigError` that says what is wrong with it."""
    try:
        row = ROW.validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise ConfigError(f"{path} is no row of the track: {error}") from error
    if row.version != protocol.version:
        other = f"version {row.version} of the track, not {protocol.version}"
        raise ConfigError(f"{path} is of {other}")
    for name, result in row.streams.items():
        if name not in protocol.streams:
            known = ", ".join(protocol.streams)
            raise ConfigError(f"{path} has a stream {name!r}, not one of {known}")
        lengths = {len(result.scores), len(result.megabytes), len(result.device_hours)}
        if lengths != {protocol.seeds} or result.rate not in protocol.rates:
            other = f"not {protocol.seeds} seeds, or a rate not in {protocol.rates}"
            raise ConfigError(f"{path}, {name}: {other}")
    return row


def row_path(folder: Path, name: str) -> Path:
    """Return where a row of this name is."""
    return folder / f"{name}.json"


def read_rows(folder: Path, protocol: Protocol) -> dict[str, TrackRow]:
    """Read all rows of a folder, by their names."""
    rows = [read_row(path, protocol) for path in sorted(folder.glob("*.json"))]
    return {row.name: row for row in rows}


def write_row(row: TrackRow, folder: Path, protocol: Protocol) -> Path:
    """Write a row; a stream that it lacks stays as it was in the file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = row_path(folder, row.name)
    streams = dict(row.streams)
    if path.exists():
        streams = {**read_row(path, protocol).streams, **streams}
    text = json.dumps(asdict(replace(row, streams=streams)), indent=2)
    write_atomically(path, f"{text}\n".encode())
    return path
