"""The page of the track: a table of methods by streams, and ranks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
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
from cfl_flower.analysis.scorecards import Table, new_table, say_lead
from cfl_flower.config.options import list_options
from cfl_flower.environment.files import write_atomically
from simulations.tracking.rows import Protocol, StreamResult, TrackRow

REFERENCES = ("local", "local_async", BOUND)
"""Rows that are no rivals: clients alone, by rounds or not, and the true clusters."""

BASELINE = "fedavg"
"""The row of which the others are ahead or behind."""

TUNED = "_ft"
"""How the names of rows end whose clients fine-tune before each test."""

TUNED_BASELINE = BASELINE + TUNED
"""The row of fine-tuning that is in the ranks. The others have a table of their own: in
the ranks a method would count twice."""

MARKS = (
    f"▲ marks a row that is ahead of {BASELINE}, ▼ one that is behind it. The test is "
    "the paired t-test over the seeds (5%), with Holm's correction for the rows of a "
    "stream."
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
    columns = [*protocol.streams, "rank", "MB", "min"]
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
            f"{sum(each.seconds for each in results) / 60:.0f}",
        ]
    return new_table(f"the track, version {protocol.version}, in %", columns, cells)


def tuned_table(rows: Rows, protocol: Protocol) -> Table | None:
    """Return what methods gain over FedAvg where all of them fine-tune, if any do."""
    tuned = {name: row for name, row in rows.items() if name.endswith(TUNED)}
    others = sorted(tuned.keys() - {TUNED_BASELINE})
    if TUNED_BASELINE not in tuned or not others:
        return None
    scores = tuned[TUNED_BASELINE].streams
    lines = []
    for stream in protocol.streams:
        leads = leads_on(tuned, stream, TUNED_BASELINE)
        cells = [say_lead(leads.get(name)) for name in others]
        lines.append([f"`{stream}`", cell(scores.get(stream)), *cells])
    return Table("with fine-tuning", ["stream", TUNED_BASELINE, *others], lines)


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


def say_repetitions(rows: Rows) -> str:
    """Say how far rows of other seeds are from the baseline that they repeat."""
    lines: list[str] = []
    for name, row in rows.items():
        if not row.first_seed or f"strategy={BASELINE}" != " ".join(row.overrides):
            continue
        leads = {stream: leads_on(rows, stream).get(name) for stream in row.streams}
        found = {stream: lead for stream, lead in leads.items() if lead is not None}
        if not found:
            continue
        most = max(found, key=lambda stream: abs(found[stream].mean))
        held = [stream for stream, lead in found.items() if lead.holds]
        lines.append(
            f"`{name}` is {BASELINE} from seed {row.first_seed} on. It is ahead or "
            f"behind on {', '.join(held) or 'none'} of {len(found)} streams. Its "
            f"largest difference is {100 * found[most].mean:+.1f} points, on `{most}`."
        )
    return "\n".join(lines)


def say_edges(rows: Rows, protocol: Protocol) -> str:
    """Say which rows have the smallest or the largest rate on most of their streams.

    Rates beyond the grid might suit them better.
    """
    found = []
    for end in (min(protocol.rates), max(protocol.rates)):
        names = [
            name
            for name, row in rows.items()
            if sum(each.rate == end for each in row.streams.values())
            > len(row.streams) / 2
        ]
        if names:
            found.append(f"{end:g}: {', '.join(names)}")
    if not found:
        return ""
    return (
        "Some methods have a rate at the end of the grid on most streams, and might do "
        f"better beyond it ({'; '.join(found)})."
    )


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


PAGE = Path(__file__).with_name("page.md")
"""The template of the page."""


TUNED_HEAD = """## With fine-tuning

What clusters add when clients fine-tune anyway (`strategy.fine_tuning=5`): the lead, in
points, of such rows over `fedavg_ft`. ± is half the 95% interval of the differences
paired by seed. *No lead*: the same test as above, against `fedavg_ft`, shows no
difference.

"""


def describe_protocol(protocol: Protocol) -> str:
    """Return what the protocol is, as Markdown."""
    rates = ", ".join(f"{rate:g}" for rate in protocol.rates)
    lines = [
        f"* Tuning tries the learning rates {rates} for each method and stream. Each "
        "rate has one run, with another seed. The rate with the best accuracy on "
        "validation samples is taken.",
        f"* Each method then runs with {protocol.seeds} seeds. A cell is the mean over "
        "all tested rounds and over the seeds, with its 95% interval (Student's t).",
    ]
    for name, stream in protocol.streams.items():
        what = "balanced accuracy" if stream.measure != "accuracy" else "accuracy"
        control = (
            "; the control, which has no part in the ranks" if stream.control else ""
        )
        lines.append(f"* `{name}`: {stream.title} ({what}{control}).")
    return "\n".join(lines)


def say_missing(rows: Rows, protocol: Protocol) -> str:
    """Say which streams rows lack, and which methods have no row, as Markdown."""
    lines = []
    for name in sorted(rows):
        lacking = [each for each in protocol.streams if each not in rows[name].streams]
        if lacking:
            lines.append(f"* {name}: no result on {', '.join(lacking)}.")
    ran = {row.overrides[0].removeprefix("strategy=") for row in rows.values()}
    if left := [each for each in list_options("strategy") if each not in ran]:
        lines.append(f"* Not run yet: {', '.join(left)}.")
    return "\n".join(lines)


def write_page(rows: Rows, protocol: Protocol, folder: Path) -> Path:
    """Write the page; return its path."""
    tuned = tuned_table(rows, protocol)
    rows = {
        name: row
        for name, row in rows.items()
        if name == TUNED_BASELINE or not name.endswith(TUNED)
    }
    text = PAGE.read_text(encoding="utf-8").format(
        version=protocol.version,
        protocol=describe_protocol(protocol),
        table=score_table(rows, protocol).markdown(),
        ranks=say_ranks(rows, protocol),
        missing=say_missing(rows, protocol),
        marks=MARKS,
        repetitions=say_repetitions(rows),
        edges=say_edges(rows, protocol),
        tuned=TUNED_HEAD + tuned.markdown() if tuned else "",
    )
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "README.md"
    write_atomically(path, text.encode())
    return path
