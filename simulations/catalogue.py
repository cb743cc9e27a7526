"""What can be reproduced here: the published tables, their data and what they cost.

The part of `simulations.reproduce` that looks at a run before it starts.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from statistics import fmean

from rich.console import Console
from rich.progress import track
from rich.table import Table

from cfl_flower.config.compose import RunConfig, compose_config
from cfl_flower.config.overrides import quoted
from cfl_flower.errors import ConfigError
from cfl_flower.runs.callbacks import clock
from cfl_flower.runs.reading import broken
from cfl_flower.settings import require
from simulations.estimate import estimate_seconds
from simulations.published import Published, load_elsewhere

FETCH = "dataset.download=true"
"""What a dataset asks for that can be fetched, and is not here."""

FETCH_HYBRID = [
    f"dataset.parts.{part}.download=true" for part in ("mnist", "fashion_mnist")
]


def compose_here(overrides: Sequence[str], asked: argparse.Namespace) -> RunConfig:
    """Compose a run on the data of `--data-dir`; fetch them first with `--download`.

    The run itself does not know that they were fetched: it is the same run afterwards.

    Raises
    ------
    ConfigError
        With this door's options as the remedy.
    """
    if asked.data_dir:
        folder = quoted(str(asked.data_dir.expanduser().absolute()))
        overrides = [*overrides, f"data_dir={folder}"]
    try:
        return compose_config(overrides)
    except ConfigError as error:
        if not (asked.download and FETCH in str(error)):
            raise ConfigError(with_remedy(str(error))) from error
    fetch(overrides)
    return compose_config(overrides)


def with_remedy(text: str) -> str:
    """Name the options of this door where others are told a setting.

    Examples
    --------
    >>> with_remedy("put the files there or add dataset.download=true")
    'put the files there, name their folder by --data-dir, or add --download'
    >>> with_remedy("put the files there")
    'put the files there, or name their folder by --data-dir'
    """
    if f" or add {FETCH}" in text:
        known = ", name their folder by --data-dir, or add --download"
        return text.replace(f" or add {FETCH}", known)
    if "put the files there" in text:
        return f"{text}, or name their folder by --data-dir"
    return text


def fetch(overrides: Sequence[str]) -> None:
    """Fetch the data of a run.

    Raises
    ------
    ConfigError
        If they cannot be.
    """
    try:
        config = compose_config([*overrides, FETCH])
    except ConfigError as error:
        if "is no setting" not in str(error):
            raise
        config = compose_config([*overrides, *FETCH_HYBRID])
    config.dataset.load(config.data_dir)


def listing(tables: Mapping[str, Published], asked: argparse.Namespace) -> Table:
    """List tables and rows with the data that each needs and what it costs.

    Parameters
    ----------
    tables : mapping of str to Published
    asked : argparse.Namespace
        `rows` are how the rows' names start, all without any; `output` is where runs
        are kept: finished ones tell what others like them will take.

    Raises
    ------
    ConfigError
        If no row's name starts so, or a run cannot be read.
    """
    result = Table(title="Published tables", title_justify="left")
    size = "rounds x\nparticipants"
    for name in ("table", "row", "runs", size, "time of a run", "data"):
        result.add_column(name, overflow="fold")
    rows = [
        (table, row)
        for table in tables.values()
        for row in table.rows
        if not asked.rows or row.startswith(tuple(asked.rows))
    ]
    names = sorted({row for table in tables.values() for row in table.rows})
    require(bool(rows), "--rows", asked.rows, f"rows {', '.join(names)}")
    look = cache(partial(_size_time_and_data, asked))
    for table, row in track(rows, "a look at each", console=Console(stderr=True)):
        known = _time_of_runs(asked.output / table.folder / row)
        cell = table.cell(row, table.columns[0])
        size, taken, data = look(tuple(cell.overrides), known is None)
        runs = str(len({*table.columns, *_marks(table)}))
        result.add_row(table.name, row, runs, size, known or taken, data)
    return result


def _marks(table: Published) -> set[str]:
    """Return the method that is run beside those of the columns, if there is one."""
    return {table.against} & set(table.methods) if table.against else set()


def _size_time_and_data(
    asked: argparse.Namespace, overrides: tuple[str, ...], guess: bool
) -> tuple[str, ...]:
    """Say how large a run is, how long it may take here, and what data it needs."""
    try:
        config = compose_here(overrides, asked)
        taken = f"about {clock(estimate_seconds(config))}, one core" if guess else ""
    except ConfigError as error:
        return "", "", str(error)
    size = f"{config.rounds} x {config.participants}"
    return size, taken, f"{config.names['dataset']}: here"


def _time_of_runs(folder: Path) -> str | None:
    """Say how long the finished runs of a row took.

    Raises
    ------
    ConfigError
        If what one left behind cannot be read.
    """
    found = []
    for path in sorted(folder.glob("*/summary.json")):
        if "-x" in path.parent.name:  # a part of the rounds only
            continue
        try:
            found.append(float(json.loads(path.read_bytes())["seconds"]))
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise broken(path, error) from error
    return f"{clock(fmean(found))}, as here" if found else None


def show_elsewhere(console: Console) -> None:
    """List what the papers show and no run of this door makes."""
    console.print("\nShown elsewhere:", highlight=False)
    for name, where in load_elsewhere().items():
        console.print(f"  {name}: {where}", highlight=False, markup=False)
