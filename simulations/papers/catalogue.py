"""What `simulations.reproduce` can run here: tables, their data, the cost of a run."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import cache

from rich.console import Console
from rich.progress import track
from rich.table import Table

from cfl_flower.errors import ConfigError
from cfl_flower.settings import require
from simulations.papers.published import PublishedTable, load_elsewhere
from simulations.study import compose_here


def list_tables(
    tables: Mapping[str, PublishedTable], options: argparse.Namespace
) -> tuple[Table, list[str]]:
    """List the rows of tables with what they cost, of a single one also the data.

    To tell the data of a row its settings are composed, half a second of each. Why rows
    cannot run here is in notes, which the table counts from 1: many rows lack the same
    files. A `ConfigError` names rows that there are not.
    """
    result = Table(title="Published tables", title_justify="left")
    size = "rounds x\nparticipants"
    whole = len(tables) == 1
    names = ["table", "row", "runs"]
    for name in [*names, size, "data"] if whole else names:
        result.add_column(name, overflow="fold")
    rows = [(table, row) for table in tables.values() for row in table.rows]
    wanted = tuple(options.rows) or ("",)
    some = [(table, row) for table, row in rows if row.startswith(wanted)]
    known = ", ".join(sorted({row for _, row in rows}))
    require(bool(some), "--rows", options.rows, f"rows {known}")

    notes: list[str] = []

    @cache
    def describe(overrides: tuple[str, ...]) -> tuple[str, str]:
        """Return how large a run is, and the data it needs."""
        try:
            config = compose_here(overrides, options)
        except ConfigError as error:
            if str(error) not in notes:
                notes.append(str(error))
            return "", f"not here: note {notes.index(str(error)) + 1}"
        size = f"{config.rounds} x {config.participants}"
        return size, f"{config.names['dataset']}: here"

    for table, row in track(some, "reading the rows", console=Console(stderr=True)):
        own = tuple(table.cell(row, table.columns[0]).parts[0].overrides)
        needs = describe(own) if whole else ()
        methods = {*table.columns} | ({table.against} & table.methods.keys())
        result.add_row(table.name, row, str(len(methods)), *needs)
    return result, notes


def list_elsewhere(console: Console) -> None:
    """List what the papers show and `reproduce` does not run."""
    console.print("\nShown elsewhere:", highlight=False)
    for name, found in load_elsewhere().items():
        console.print(f"  {name}: {found.where}", highlight=False, markup=False)
