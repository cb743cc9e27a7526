"""The table of the track: methods by streams, and ranks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from statistics import fmean

from rich.console import Console

from cfl_flower.analysis.baselines import BOUND
from cfl_flower.analysis.drift_metrics import mean_of_all
from cfl_flower.analysis.leads import (
    Lead,
    average_ranks,
    critical_difference,
    half_width,
    leads_over,
)
from cfl_flower.analysis.scorecards import Table, new_table
from simulations.tracking.rows import Protocol, StreamResult, TrackRow

REFERENCES = ("local", "local_async", "local_rounds", BOUND)
"""Rows that are no rivals: clients alone, by rounds or not, and the true clusters."""

BASELINE = "fedavg"
"""The row of which the others are ahead or behind."""

MARKS = (
    f"▲ marks a row that is ahead of {BASELINE}, ▼ one that is behind it. The test is "
    "the paired t-test over the seeds (5%), with Holm's correction for the rows of a "
    "stream."
)

EPOCHS = "client epochs"
"""The column of what the clients of a run compute, the mean over streams."""

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
    if baseline not in rows or stream not in rows[baseline].streams:
        return {}
    scores = {
        name: dict(enumerate(row.streams[stream].scores))
        for name, row in rows.items()
        if stream in row.streams
    }
    return leads_over(scores, baseline)


def is_rival(row: TrackRow) -> bool:
    """Return whether a row is ranked: no reference, and no repetition of another."""
    return row.name not in REFERENCES and not row.first_seed


def ranks_of(rows: Rows, protocol: Protocol) -> tuple[dict[str, float], list[str]]:
    """Return the average ranks of rivals that have every stream, and these streams.

    Streams that nobody has yet do not count.
    """
    rivals = {name: row for name, row in rows.items() if is_rival(row)}
    begun = [
        stream
        for stream in protocol.ranked
        if any(stream in row.streams for row in rivals.values())
    ]
    scores = {
        name: [row.streams[stream].mean for stream in begun]
        for name, row in rivals.items()
        if set(begun) <= row.streams.keys()
    }
    if len(scores) < 2 or not begun:
        return {}, begun
    return average_ranks(scores), begun


def score_table(rows: Rows, protocol: Protocol) -> Table:
    """Return the table of all rows, the best average rank first."""
    ranks, _ = ranks_of(rows, protocol)
    columns = [*protocol.streams, "rank", "MB", EPOCHS, "min"]
    ordered = sorted(rows, key=lambda name: (ranks.get(name, 1e9), name))
    leads = {stream: leads_on(rows, stream) for stream in protocol.streams}
    cells = {}
    for name in ordered:
        row = rows[name]
        results = row.streams.values()
        cells[name] = [
            *(
                cell(row.streams.get(stream), leads[stream].get(name))
                for stream in protocol.streams
            ),
            f"{ranks[name]:.1f}" if name in ranks else "-",
            f"{fmean(fmean(each.megabytes) for each in results):.1f}",
            say_epochs(results),
            f"{sum(each.seconds for each in results) / 60:.0f}",
        ]
    if all(line[-2] == "-" for line in cells.values()):
        # Rows of before it was counted.
        columns.remove(EPOCHS)
        cells = {name: [*line[:-2], line[-1]] for name, line in cells.items()}
    return new_table(f"the track, version {protocol.version}, in %", columns, cells)


def say_epochs(results: Collection[StreamResult]) -> str:
    """Write the mean client epochs of a run; a dash if a stream does not have them."""
    mean = mean_of_all(mean_of_all(each.client_epochs) for each in results)
    return "-" if mean is None else f"{mean:.0f}"


def say_ranks(rows: Rows, protocol: Protocol) -> str:
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
    if BASELINE in ranks and ranks[BASELINE] - ranks[first] < width:
        found += f" So they do not tell {first}, the first, from {BASELINE}."
    return found


def show(rows: Rows, protocol: Protocol, console: Console, markdown: bool) -> None:
    """Print the table."""
    if not rows:
        console.print("no rows yet; run a method: cfl-flower track ifca")
        return
    table = score_table(rows, protocol)
    shown = table.markdown() if markdown else table.draw()
    console.print(shown, markup=False, soft_wrap=markdown)
    for line in (MARKS, say_ranks(rows, protocol)):
        console.print(line, highlight=False, soft_wrap=True)
