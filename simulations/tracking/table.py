"""The table of the track: methods by streams, and ranks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from statistics import fmean

from rich.console import Console

from cfl_flower.analysis.baselines import BOUND
from cfl_flower.analysis.leads import (
    Lead,
    average_ranks,
    critical_difference,
    half_width,
    leads_over,
)
from cfl_flower.analysis.method_tables import Table, new_table
from simulations.tracking.rows import Protocol, StreamResult, TrackRow

REFERENCES = ("local", "local_async", "local_rounds", BOUND)
"""Methods that are no rivals: clients alone, by rounds or not, the true clusters."""

BASELINE = "fedavg"
"""The row of which the others are ahead or behind; with its end in their table."""

USES = {
    "": "Models as they are served",
    "ls": "With the client's label shares",
    "ft": "With fine-tuning",
}
"""What clients do with a model, by the end of a row's name: a table for each."""

MARKS = (
    f"▲ marks a row that is ahead of {BASELINE} in its table, ▼ one behind it, by the "
    "paired t-test over seeds (5%), with Holm's correction for the rows of a stream. "
    "MB and client epochs are means over those ranked streams that a row has."
)

Rows = Mapping[str, TrackRow]


def cell(result: StreamResult | None, lead: Lead | None = None) -> str:
    """Write the mean score of a method on a stream with its interval, in percent.

    A lead over the baseline that its test does not reject is marked.

    Examples
    --------
    >>> cell(None)
    '-'
    """
    if result is None:
        return "-"
    mean = f"{100 * result.mean:.1f}"
    half = half_width(result.scores)
    written = mean if half is None else f"{mean} ± {100 * half:.1f}"
    if lead is None or not lead.holds:
        return written
    return f"{written} {'▲' if lead.mean > 0 else '▼'}"


def leads_on(rows: Rows, stream: str, baseline: str = BASELINE) -> dict[str, Lead]:
    """Return the leads of rows over the baseline on a stream, paired by seed."""
    known = {name: row.streams.get(stream) for name, row in rows.items()}
    scores = {n: dict(enumerate(each.scores)) for n, each in known.items() if each}
    return leads_over(scores, baseline) if baseline in scores else {}


def baseline_of(use: str) -> str:
    """Return the row of which the others of a use are ahead or behind."""
    return f"{BASELINE}_{use}".rstrip("_")


def use_of(row: TrackRow) -> str:
    """Return what a row's clients do with models, a key of `USES`."""
    if any(each.fine_tuning for each in row.streams.values()):
        return "ft"
    return "ls" if "ls" in row.name.split("_") else ""


def by_use(rows: Rows) -> dict[str, Rows]:
    """Return the rows of each use."""
    return {
        use: {name: row for name, row in rows.items() if use_of(row) == use}
        for use in USES
    }


def is_rival(row: TrackRow) -> bool:
    """Return whether a row is ranked: references are not."""
    return row.overrides[0].removeprefix("strategy=") not in REFERENCES


def ranks_of(rows: Rows, protocol: Protocol) -> tuple[dict[str, float], list[str]]:
    """Return the average ranks of rivals that have every stream, and these streams.

    Streams that nobody has yet do not count.
    """
    rivals = {name: row for name, row in rows.items() if is_rival(row)}
    known = {stream for row in rivals.values() for stream in row.streams}
    begun = [stream for stream in protocol.ranked if stream in known]
    scores = {
        name: [row.streams[stream].mean for stream in begun]
        for name, row in rivals.items()
        if set(begun) <= row.streams.keys()
    }
    if len(scores) < 2 or not begun:
        return {}, begun
    return average_ranks(scores), begun


def score_table(rows: Rows, protocol: Protocol, use: str = "") -> Table:
    """Return the table of all rows of a use, the best average rank first."""
    ranks, _ = ranks_of(rows, protocol)
    baseline = baseline_of(use)
    columns = [*protocol.streams, "rank", "MB", "client epochs"]
    ordered = sorted(rows, key=lambda name: (ranks.get(name, 1e9), name))
    leads = {stream: leads_on(rows, stream, baseline) for stream in protocol.streams}
    cells = {}
    for name in ordered:
        streams = rows[name].streams
        counted = [each for key, each in streams.items() if key in protocol.ranked]
        cells[name] = [
            *(cell(streams.get(key), leads[key].get(name)) for key in protocol.streams),
            f"{ranks[name]:.1f}" if name in ranks else "-",
            say_mean([fmean(each.megabytes) for each in counted], ".1f"),
            say_mean([fmean(each.client_epochs) for each in counted], ".0f"),
        ]
    return new_table(f"{USES[use]}, in %", columns, cells)


def say_mean(values: Collection[float], form: str) -> str:
    """Write a mean; a dash of nothing."""
    return f"{fmean(values):{form}}" if values else "-"


def say_ranks(rows: Rows, protocol: Protocol, use: str = "") -> str:
    """Say what the ranks are of, and from which difference on methods differ."""
    ranks, streams = ranks_of(rows, protocol)
    if not ranks:
        return "No ranks: fewer than two methods have every stream."
    width = critical_difference(len(ranks), len(streams))
    found = (
        f"Ranks are averages over {len(streams)} streams ({', '.join(streams)}) of the "
        f"{len(ranks)} methods that have them all. Two methods differ if their ranks "
        f"are at least {width:.1f} apart (Nemenyi's test, 5%; Demšar, 2006)."
    )
    first = min(ranks, key=lambda name: ranks[name])
    baseline = baseline_of(use)
    if 0 < ranks.get(baseline, 0) - ranks[first] < width:
        found += f" So they do not tell {first}, the first, from {baseline}."
    return found


def show(rows: Rows, protocol: Protocol, console: Console, markdown: bool) -> None:
    """Print the tables."""
    if not rows:
        console.print("no rows yet; run a method: cfl-flower track ifca")
        return
    for use, some in by_use(rows).items():
        if not some:
            continue
        table = score_table(some, protocol, use)
        shown = table.markdown() if markdown else table.draw()
        console.print(shown, markup=False, soft_wrap=markdown)
        for line in (say_ranks(some, protocol, use), ""):
            console.print(line, highlight=False, soft_wrap=True)
    console.print(MARKS, highlight=False, soft_wrap=True)
