"""What runs of published tables gave, kept beside the published figures.

`simulations.reproduce TABLE --record` adds its finished runs to recorded.json.
`make docs` writes tables from it into the papers' pages (tests/docs/scoreboard.py), so
that they say what runs said, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from cfl_flower.environment.files import write_atomically
from cfl_flower.types import Json
from simulations.papers.measured import Outcomes
from simulations.papers.published import Cell, PublishedTable, suffix

RECORDED = Path(__file__).with_name("recorded.json")


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


def differences(table: PublishedTable, outcomes: Outcomes, scale: float) -> list[str]:
    """Say which figures are not the recorded ones, of which each has one."""
    figures = load()["figures"]
    found = []
    for cell, outcome in outcomes:
        name = figure_name(table, cell, scale)
        kept = figures[name]["values"]
        for seed, value in rounded(outcome.values).items():
            if value != kept[seed]:
                found.append(f"{name}, seed {seed}: {value}, recorded {kept[seed]}")
    return found


def rounded(values: Mapping[int, float | None]) -> dict[str, float | None]:
    """Return values by seed as JSON has them."""
    return {str(s): None if v is None else round(v, 4) for s, v in values.items()}


def text(known: dict[str, dict[str, Json]]) -> str:
    """Return the file, with one figure or run a line, for readable differences."""
    parts = []
    for part, entries in sorted(known.items()):
        pairs = sorted(entries.items())
        rows = [f"{json.dumps(key)}: {json.dumps(entry)}" for key, entry in pairs]
        parts.append(f'"{part}": {{\n' + ",\n".join(rows) + "\n}")
    return "{\n" + ",\n".join(parts) + "\n}\n"
