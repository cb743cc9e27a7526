"""The page of the track, docs/track/README.md, from its rows.

python -m tests.docs.track
"""

from __future__ import annotations

from pathlib import Path

from cfl_flower.analysis.scorecards import Table, say_lead
from cfl_flower.config.options import list_options
from cfl_flower.environment.files import write_atomically
from cfl_flower.environment.plugins import CONF
from simulations.tracking.rows import ROWS, Protocol, load_protocol, read_rows
from simulations.tracking.table import (
    BASELINE,
    MARKS,
    Rows,
    cell,
    leads_on,
    say_ranks,
    score_table,
)

FOLDER = CONF.parent / "docs" / "track"

TUNED = "_ft"
"""How the names of rows end whose clients fine-tune before each test."""

TUNED_BASELINE = BASELINE + TUNED
"""The row of fine-tuning that is in the ranks. The others have a table of their own: in
the ranks a method would count twice."""


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


PAGE = Path(__file__).with_name("track.md")
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


if __name__ == "__main__":
    protocol = load_protocol()
    write_page(read_rows(ROWS, protocol), protocol, FOLDER)
