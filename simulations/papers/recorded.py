"""What runs of published tables gave, kept beside the published figures.

`simulations.reproduce TABLE --record` adds its finished runs to recorded.json.
`simulations.scoreboard` writes tables from it into the papers' pages, so that they say
what runs said, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from cfl_flower.analysis.leads import TESTED
from cfl_flower.analysis.scorecards import markdown
from cfl_flower.environment.files import write_atomically
from cfl_flower.types import Json
from simulations.papers.measured import (
    HEADER,
    TEXTS,
    Outcome,
    Outcomes,
    lines,
    verdict,
)
from simulations.papers.published import Cell, PublishedTable, load_tables, suffix

RECORDED = Path(__file__).with_name("recorded.json")

EMPTY = {"-", verdict(None, 0)}
"""What is said where there is nothing to say."""

HEAD = f"""Written by `make docs` from
[recorded.json](../../simulations/papers/recorded.json), which has the commit and the
figures of each run. `reproduce TABLE --record` adds runs to it.

* `ours`: ±: the standard deviation over the seeds.
* `lead`: {TESTED}

"""


def load() -> dict[str, dict[str, Json]]:
    """Return the figures by table, row, method and scale, and the runs by folder."""
    found: dict[str, dict[str, Json]] = {"figures": {}, "runs": {}}
    if RECORDED.exists():
        found |= json.loads(RECORDED.read_text())
    return found


def figure_name(table: PublishedTable, cell: Cell, scale: float) -> str:
    """Return the key of a figure."""
    return f"{table.name}/{cell.row}/{cell.method}{suffix(scale)}"


def record(table: PublishedTable, outcomes: Outcomes, scale: float) -> None:
    """Add what finished runs gave to the file. A seed's new figure replaces its old."""
    known = load()
    for cell, outcome in outcomes:
        if not outcome.saved:
            continue
        name = figure_name(table, cell, scale)
        empty = {"scale": scale, "values": {}, "last_ten": {}}
        figure = known["figures"].setdefault(name, empty)
        figure["values"] |= rounded(outcome.values)
        figure["last_ten"] |= rounded(outcome.last_ten)
        known["runs"] |= outcome.runs()
    write_atomically(RECORDED, text(known).encode())


def rounded(values: Mapping[int, float | None]) -> dict[str, float | None]:
    """Return values by seed as JSON has them."""
    return {str(s): None if v is None else round(v, 4) for s, v in values.items()}


def text(known: dict[str, dict[str, Json]]) -> str:
    """Return the file, with one figure or run a line, for readable differences."""
    parts = []
    for part, entries in sorted(known.items()):
        rows = [
            f"{json.dumps(key)}: {json.dumps(entries[key])}" for key in sorted(entries)
        ]
        parts.append(f'"{part}": {{\n' + ",\n".join(rows) + "\n}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def section(prefix: str) -> str:
    """Return the tables of a paper's recorded figures, as Markdown."""
    figures = load()["figures"]
    found = HEAD
    for table in load_tables().values():
        if table.name.startswith(f"{prefix}_"):
            found += "".join(of_table(table, figures))
    return found


def of_table(table: PublishedTable, figures: Mapping[str, Json]) -> Iterator[str]:
    """Yield a table with its heading for each part of the rounds that was run."""
    own = [name for name in figures if name.startswith(f"{table.name}/")]
    for scale in sorted({figures[name]["scale"] for name in own}, reverse=True):
        outcomes = []
        for cell in table.cells([], []):
            figure = figures.get(figure_name(table, cell, scale))
            if figure is not None:
                outcomes.append((cell, read_outcome(figure)))
        part = "" if scale == 1 else f", after {scale:g} of the rounds"
        title = table.title.partition(", ")[2]
        yield f"### {title}{part}\n`{table.name}`: {table.unit}; {table.source}\n\n"
        seeds = [str(len(outcome.values)) for _, outcome in outcomes]
        columns = [
            *zip(HEADER, *lines(table, outcomes, scale), strict=True),
            ("seeds", *seeds),
        ]
        kept = [column for column in columns if set(column[1:]) - EMPTY]
        header, *rows = zip(*kept, strict=True)
        yield markdown(header, rows, TEXTS) + "\n\n"


def read_outcome(figure: Json) -> Outcome:
    """Return an outcome as it was recorded."""
    values = {int(seed): value for seed, value in figure["values"].items()}
    tail = {int(seed): value for seed, value in figure["last_ten"].items()}
    return Outcome(values, tail)
