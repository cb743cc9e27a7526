"""The page of the track, docs/track/README.md, from its rows.

python -m tests.docs.track
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from statistics import fmean

from cfl_flower.analysis.leads import Lead, find_lead, say_lead
from cfl_flower.analysis.method_tables import Table
from cfl_flower.config.options import list_options
from cfl_flower.environment.files import write_atomically
from cfl_flower.environment.plugins import CONF
from simulations.tracking.rows import ROWS, Protocol, TrackRow, load_protocol, read_rows
from simulations.tracking.table import (
    MARKS,
    USES,
    Rows,
    baseline_of,
    by_use,
    say_ranks,
    score_table,
    use_of,
)

FOLDER = CONF.parent / "docs" / "track"

PAGE = Path(__file__).with_name("track.md")
"""The template of the page."""

LEFT = ("stream", "situation", "take", "without clusters")
"""Columns of words."""


KINDS = ("without", "clusters", "bound")
"""The kinds of a protocol's rows: without clusters, with those of a method, and with
the true ones."""

ALL_TRAIN = ("all_without", "all_clusters", "bound")
"""The same where all clients train in every round."""


def situations(
    rows: Rows,
    protocol: Protocol,
    untrained: bool = False,
    kinds: Sequence[str] = KINDS,
) -> Table:
    """Return the map: on each stream the best without clusters, and what these add.

    The best is that of the tuning's seed, which is none of those of the scores: a
    comparison is of two rows, and known before it is made. Where clients are
    ``untrained``, rows of those who train before a test have no part.
    """
    lines = []
    for key, stream in protocol.streams.items():
        one, found, true = (
            _best_of(rows, protocol, kind, key, untrained) for kind in kinds
        )
        if one is None:
            continue
        leads = [lead_of(each, one, key, "scores") for each in (found, true)]
        won = leads[0] is not None and leads[0].holds and leads[0].mean > 0
        take = found if won and found else one
        adding = [
            f"{_told(each, key)}: {say_lead(lead)}; at the end "
            f"{say_lead(lead_of(each, one, key, 'last'))}"
            if each
            else "-"
            for each, lead in zip((found, true), leads, strict=True)
        ]
        costs = [each.streams[key] for each in (one, found) if each]
        spent = [
            " / ".join(f"{fmean(getattr(each, kind)):.0f}" for each in costs)
            for kind in ("megabytes", "client_epochs")
        ]
        told = [f"`{key}`", stream.title, take.name, _told(one, key)]
        lines.append([*told, *adding, *spent])
    heads = ["stream", "situation", "take", "without clusters", "a method's add"]
    heads += ["the true ones add", "MB", "client epochs"]
    return Table("what clusters add, in points", heads, lines)


def _best_of(
    rows: Rows, protocol: Protocol, kind: str, stream: str, untrained: bool
) -> TrackRow | None:
    """Return the row of a kind that is the best with the tuning's seed on a stream."""
    there = [
        row
        for name in protocol.rows(stream).get(kind, ())
        if (row := rows.get(name)) and stream in row.streams
    ]
    if untrained:
        trained = protocol.trained
        there = [r for r in there if use_of(r) != "ft" and r.name not in trained]
    return max(there, key=lambda row: row.streams[stream].tuned, default=None)


def _told(row: TrackRow, stream: str) -> str:
    return f"{row.name} {100 * row.streams[stream].mean:.1f}"


def lead_of(row: TrackRow | None, other: TrackRow, stream: str, of: str) -> Lead | None:
    """Return the lead of a row over another in some scores, paired by seed."""
    if row is None:
        return None
    both = (getattr(each.streams[stream], of) for each in (row, other))
    return find_lead(zip(*both, strict=True))


def say_edges(rows: Rows, protocol: Protocol) -> str:
    """Say which rows have the smallest or the largest rate on most of their streams.

    Rates beyond the grid might suit them better.
    """
    found = []
    for end in (min(protocol.rates), max(protocol.rates)):
        names = [
            name
            for name, row in rows.items()
            if fmean(each.rate == end for each in row.streams.values()) > 1 / 2
        ]
        if names:
            found.append(f"{end:g}: {', '.join(names)}")
    if not found:
        return ""
    return (
        "Some rows have a rate at the end of the grid on most streams, and might do "
        f"better beyond it ({'; '.join(found)})."
    )


def describe_protocol(protocol: Protocol) -> str:
    """Return what the protocol is, as Markdown."""
    rates = ", ".join(f"{rate:g}" for rate in protocol.rates)
    lines = [
        f"* Tuning tries the learning rates {rates} for each row and stream. Each rate "
        "has one run, with another seed. The rate with the best accuracy on validation "
        "samples is taken."
    ]
    if protocol.fine_tunings:
        ways = " or ".join(
            f"`{' '.join(each)}`" for each in protocol.fine_tunings.values()
        )
        lines.append(f"* Fine-tuning is chosen in the same way: {ways}.")
    lines.append(
        f"* Each row then runs with {protocol.seeds} seeds. A cell is the mean over "
        "all tested rounds and over the seeds, with its 95% interval (Student's t)."
    )
    return "\n".join(lines)


def say_missing(rows: Rows, protocol: Protocol) -> str:
    """Say which streams rows lack, and which methods have no row, as Markdown."""
    lines = []
    for name in sorted(rows):
        lacking = [
            stream
            for stream in protocol.streams
            if name in chain(*protocol.rows(stream).values())
            and stream not in rows[name].streams
        ]
        if lacking:
            lines.append(f"* {name}: no result on {', '.join(lacking)}.")
    ran = {row.overrides[0].removeprefix("strategy=") for row in rows.values()}
    if left := [each for each in list_options("strategy") if each not in ran]:
        lines.append(f"* Not run in this version: {', '.join(left)}.")
    return "\n".join(lines)


def say_hours(rows: Rows) -> str:
    """Return the hours that all runs took, tuning included."""
    streams = chain.from_iterable(row.streams.values() for row in rows.values())
    return f"{sum(each.seconds for each in streams) / 3600:.1f}"


def say_commits(rows: Rows) -> str:
    """Return the commit of most rows, and of the others with their names."""
    by_commit: dict[str, list[str]] = {}
    for name in sorted(rows):
        commit = (rows[name].provenance["commit"] or "unknown")[:7]
        by_commit.setdefault(commit, []).append(f"`{name}`")
    most, *others = sorted(by_commit.items(), key=lambda pair: -len(pair[1]))
    told = [f"; those of {', '.join(names)} are of `{each}`" for each, names in others]
    return f"`{most[0]}`{''.join(told)}"


def say_rows(rows: Rows, protocol: Protocol) -> str:
    """Return the tables of all rows, one for each use, and who has no ▲ in it."""
    parts = []
    for use, some in by_use(rows).items():
        if some:
            table = score_table(some, protocol, use)
            others = (line for line in table.lines if line[0] != baseline_of(use))
            names = ", ".join(line[0] for line in others if "▲" not in " ".join(line))
            told = f"{say_ranks(some, protocol, use)} Without any ▲: {names or 'none'}."
            parts.append(f"### {USES[use]}\n\n{table.markdown()}\n\n{told}")
    return "\n\n".join(parts)


def write_page(rows: Rows, protocol: Protocol, folder: Path) -> Path:
    """Write the page; return its path."""
    text = PAGE.read_text(encoding="utf-8").format(
        version=protocol.version,
        map=situations(rows, protocol).markdown(LEFT),
        untrained=situations(rows, protocol, untrained=True).markdown(LEFT),
        all_train=situations(rows, protocol, kinds=ALL_TRAIN).markdown(LEFT),
        protocol=describe_protocol(protocol),
        rows=say_rows(rows, protocol),
        missing=say_missing(rows, protocol),
        marks=MARKS,
        edges=say_edges(rows, protocol),
        hours=say_hours(rows),
        commits=say_commits(rows),
        trained=", ".join(f"`{name}`" for name in protocol.trained),
    )
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "README.md"
    write_atomically(path, text.encode())
    return path


if __name__ == "__main__":
    protocol = load_protocol()
    write_page(read_rows(ROWS, protocol), protocol, FOLDER)
