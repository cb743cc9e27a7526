"""A published table, run here and printed beside the published figures.

    python -m simulations.reproduce --list                   # and what each costs here
    python -m simulations.reproduce flexcfl_table3 --list    # of one table
    python -m simulations.reproduce flexcfl_table3 --rows synthetic_mclr
    python -m simulations.reproduce flexcfl_table3 --rows mnist --scale 0.1 --seeds 1

Runs are kept below `--output`: the same command goes on where it was interrupted, and
does nothing again that is finished. The published figures are in published.yaml. Exit
codes as `simulations.run`; 1 also if a run failed, whose reason the table shows.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import fmean, stdev

import yaml
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from cfl_flower.callbacks import clock
from cfl_flower.config import RunConfig, compose_config
from cfl_flower.errors import CflError, ConfigError
from cfl_flower.models import initial_vector
from cfl_flower.overrides import quoted
from cfl_flower.results import finished, read_lines
from cfl_flower.server_app import make_console
from cfl_flower.settings import require
from cfl_flower.types import Json
from simulations.estimate import estimate_seconds
from simulations.jobs import Job, at_once, carry_out
from simulations.run import report
from simulations.terminal import Parser

PUBLISHED = Path(__file__).with_name("published.yaml")


@dataclass(frozen=True)
class Cell:
    """One published figure, and what makes it here.

    Attributes
    ----------
    row, method : str
    published : float or None
        In percent; None if the paper has none.
    overrides : list of str
    """

    row: str
    method: str
    published: float | None
    overrides: list[str]


@dataclass(frozen=True)
class Published:
    """A table of a paper.

    Attributes
    ----------
    title, source : str
    measure : str
        What is compared: ``best`` or ``final``, whose accuracy is in `summary.json`;
        ``last KEY`` or ``mean KEY``, of all rounds that have it in `rounds.jsonl`; or
        ``bytes``, both ways, relative to the models of a FedAvg of as many rounds.
    tolerance : float
        Points within which a figure counts as reproduced.
    methods : dict of str to list of str
        The overrides of each method.
    columns : list of str
        The methods in the table's order.
    rows : dict
        The overrides and the values of each row, and what a method has beside in it.
    runs : str, optional
        The table that has the same runs, and looks at something else.
    """

    title: str
    source: str
    measure: str
    tolerance: float
    methods: Mapping[str, list[str]]
    columns: list[str]
    rows: Mapping[str, Mapping[str, Json]]
    runs: str | None = None

    @property
    def unit(self) -> str:
        """What the figures are."""
        if self.measure == "bytes":
            return "bytes in % of FedAvg's"
        return f"accuracy in %, {self.measure}"

    def value(self, config: RunConfig, summary: Mapping[str, Json]) -> float:
        """Return what is compared of a finished run, in percent."""
        if self.measure == "bytes":
            own = summary["bytes_up"] + summary["bytes_down"]
            dataset = config.dataset
            model = initial_vector(config.model, dataset.shape, dataset.classes, 0)
            exchanges = 2 * config.rounds * config.participants
            return 100 * float(own) / (exchanges * model.nbytes)
        kind, _, key = self.measure.partition(" ")
        if not key:
            return 100 * float(summary[kind]["accuracy"])
        lines = read_lines(Path(config.output_dir) / "rounds.jsonl")
        known = [row[key] for row in lines if row.get(key) is not None]
        return 100 * float(known[-1] if kind == "last" else fmean(known))

    def cells(self, rows: Sequence[str], methods: Sequence[str]) -> list[Cell]:
        """Return the cells of the methods, and of the rows whose names start as asked.

        Raises
        ------
        ConfigError
            If one is not there.
        """
        found = [
            Cell(name, method, value, self._overrides(row, method))
            for name, row in self.rows.items()
            for method, value in zip(self.columns, row["values"], strict=True)
            if (not rows or name.startswith(tuple(rows)))
            and (not methods or method in methods)
        ]
        known = f"rows {', '.join(self.rows)} and methods {', '.join(self.columns)}"
        unknown = [each for each in methods if each not in self.columns]
        unknown += [
            each
            for each in rows
            if not any(name.startswith(each) for name in self.rows)
        ]
        require(not unknown, "--rows or --methods", unknown, known)
        return found

    def _overrides(self, row: Mapping[str, Json], method: str) -> list[str]:
        """Return what makes a cell; a row can have its own settings of a method."""
        own = row.get("methods", {}).get(method, [])
        return [*row["overrides"], *self.methods[method], *own]


@dataclass
class Measured:
    """What came of a cell.

    Attributes
    ----------
    values : list of float
        In percent, one for each finished seed.
    reasons : list of str
        Why the other seeds failed.
    """

    values: list[float] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)


def load_published() -> dict[str, Published]:
    """Return all tables by name."""
    tables = yaml.safe_load(PUBLISHED.read_text(encoding="utf-8"))
    return {name: Published(**table) for name, table in tables.items()}


def make_job(cell: Cell, seed: int, scale: float, root: Path) -> RunConfig:
    """Compose and check one run of a cell; it goes on if it was interrupted.

    Raises
    ------
    ConfigError
    """
    part = "" if scale == 1 else f"-x{scale:g}"
    folder = root / cell.row / f"{cell.method}-s{seed}{part}"
    fixed = [f"seed={seed}", "engine=inprocess", "resume=true"]
    fixed.append(f"output_dir={quoted(str(folder.absolute()))}")
    config = compose_config([*cell.overrides, *fixed])
    if scale == 1:
        return config
    rounds = max(1, round(config.rounds * scale))
    drift = scaled_drift(config.resolved["drift"], scale)
    return compose_config([*cell.overrides, f"rounds={rounds}", *drift, *fixed])


def scaled_drift(drift: Mapping[str, Json], scale: float) -> list[str]:
    """Return the overrides that let the data change at the same part of a run.

    What changes after the first round never comes to change in it.

    Examples
    --------
    >>> scaled_drift({"rounds": [2, 101], "every": 1, "first": 2}, 0.3)
    ['drift.rounds=[2,31]', 'drift.every=1', 'drift.first=2']
    """

    def moment(round_: int) -> int:
        return max(min(round_, 2), 1 + round((round_ - 1) * scale))

    found = []
    if rounds := drift.get("rounds"):
        found.append(f"drift.rounds=[{','.join(str(moment(each)) for each in rounds)}]")
    if every := drift.get("every"):
        found.append(f"drift.every={max(1, round(every * scale))}")
    if first := drift.get("first"):
        found.append(f"drift.first={moment(first)}")
    return found


def reproduce(
    table: Published, cells: list[Cell], asked: argparse.Namespace, root: Path
) -> dict[tuple[str, str], Measured]:
    """Run what is not finished, several at a time; return what each cell came to.

    Raises
    ------
    ConfigError
        If any run has bad input, before the first starts.
    """
    jobs = {
        (cell.row, cell.method, seed): make_job(cell, seed, asked.scale, root)
        for cell in cells
        for seed in range(asked.seeds)
    }
    found = {(cell.row, cell.method): Measured() for cell in cells}
    runs = {
        key: Job(f"{key[0]} {key[1]} seed {key[2]}", job) for key, job in jobs.items()
    }
    most = at_once(list(jobs.values()), asked.jobs)
    reasons = carry_out(list(runs.values()), most, asked.talk, table.title)
    for (row, method, seed), job in jobs.items():
        if reason := reasons.get(job.output_dir):
            found[row, method].reasons.append(
                f"{row} {method} seed {seed} failed: {reason}"
            )
        if summary := finished(job):
            found[row, method].values.append(table.value(job, summary))
    return found


def lines(
    table: Published, cells: Iterable[Cell], found: Mapping[tuple[str, str], Measured]
) -> list[list[str]]:
    """Return row, method, ours, published, difference and verdict of each cell."""
    result = []
    for cell in cells:
        measured = found[cell.row, cell.method]
        gap = None
        ours = "failed"
        if measured.values:
            mean = fmean(measured.values)
            many = len(measured.values) > 1
            ours = f"{mean:.1f}" + (f" ± {stdev(measured.values):.1f}" if many else "")
            gap = None if cell.published is None else mean - cell.published
        said = verdict(gap, table.tolerance) if measured.values else ""
        if measured.values and (without := len(measured.reasons)):
            said += f", without {without} failed"
        result.append(
            [
                cell.row,
                cell.method,
                ours,
                "-" if cell.published is None else f"{cell.published:.1f}",
                "-" if gap is None else f"{gap:+.1f}",
                said,
            ]
        )
    return result


def verdict(gap: float | None, tolerance: float) -> str:
    """Say in a word how a figure compares with the published one.

    Examples
    --------
    >>> verdict(-0.4, 1.5), verdict(3.0, 1.5), verdict(-3.0, 1.5), verdict(None, 1.5)
    ('reproduced', 'above', 'below', 'no published figure')
    """
    if gap is None:
        return "no published figure"
    if abs(gap) <= tolerance:
        return "reproduced"
    return "above" if gap > 0 else "below"


HEADER = ("row", "method", "ours", "published", "difference", "verdict")


def draw(title: str, rows: Iterable[Sequence[str]], caption: str = "") -> Table:
    """Lay a table out for the terminal."""
    table = Table(
        title=title,
        title_justify="left",
        caption=escape(caption) or None,
        caption_justify="left",
    )
    for name in HEADER:
        number = name in ("ours", "published", "difference")
        table.add_column(name, justify="right" if number else "left")
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def markdown(rows: Iterable[Sequence[str]]) -> str:
    """Lay a table out for a document."""
    rule = ("---", "---", "---:", "---:", "---:", "---")
    return "\n".join("| " + " | ".join(row) + " |" for row in (HEADER, rule, *rows))


def listing(tables: Mapping[str, Published], rows: Sequence[str], root: Path) -> Table:
    """List tables and rows with the data that each needs and what it costs.

    Parameters
    ----------
    tables : mapping of str to Published
    rows : sequence of str
        How the rows' names start; all without any.
    root : Path
        Where runs are kept: finished ones tell what others like them will take.

    Raises
    ------
    ConfigError
        If no row's name starts so.
    """
    result = Table(title="Published tables", title_justify="left")
    size = "rounds x\nparticipants"
    for name in ("table", "row", "runs", size, "time of a run", "data"):
        result.add_column(name, overflow="fold")
    asked = [
        (name, table, row)
        for name, table in tables.items()
        for row in table.rows
        if not rows or row.startswith(tuple(rows))
    ]
    known_rows = sorted({row for table in tables.values() for row in table.rows})
    require(bool(asked), "--rows", list(rows), f"rows {', '.join(known_rows)}")
    console = Console(stderr=True)
    for name, table, row in track(asked, "a look at each", console=console):
        folder = root / (table.runs or name) / row
        first = (*table.rows[row]["overrides"], *table.methods[table.columns[0]])
        known = _time_of_runs(folder)
        size, taken, data = _size_time_and_data(first, known is None)
        runs = str(len(table.columns))
        result.add_row(name, row, runs, size, known or taken, data)
    return result


@cache
def _size_time_and_data(overrides: tuple[str, ...], guess: bool) -> tuple[str, ...]:
    """Say how large a run is, how long it may take here, and what data it needs."""
    try:
        config = compose_config(overrides)
        taken = f"about {clock(estimate_seconds(config))}, one core" if guess else ""
    except ConfigError as error:
        return "", "", str(error)
    size = f"{config.rounds} x {config.participants}"
    return size, taken, f"{config.names['dataset']}: here"


def _time_of_runs(folder: Path) -> str | None:
    """Say how long the finished runs of a row took."""
    summaries = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in folder.glob("*/summary.json")
        if "-x" not in path.parent.name  # a part of the rounds only
    ]
    if not summaries:
        return None
    return f"{clock(fmean(each['seconds'] for each in summaries))}, as here"


def parse(arguments: Sequence[str], tables: Iterable[str]) -> argparse.Namespace:
    """Read the command line.

    Raises
    ------
    ConfigError
    """
    parser = Parser("reproduce", str(__doc__))
    parser.add_argument("table", nargs="?")
    parser.add_argument("--list", action="store_true", help="show what there is")
    parser.add_argument("--rows", nargs="+", default=[], help="that start so")
    parser.add_argument("--methods", nargs="+", default=[])
    parser.add_argument("--seeds", type=int, default=1, help="how many, from 0 on")
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        help="of the rounds, and of those of the drift",
    )
    parser.add_argument("--jobs", type=int, help="at a time (default: as fit)")
    parser.add_argument("--output", type=Path, default=Path("outputs/reproduce"))
    parser.add_argument("--markdown", action="store_true", help="print it as Markdown")
    parser.add_talk()
    asked = parser.parse_args(arguments)
    known = asked.table is None or asked.table in tables
    require(known, "table", asked.table, f"one of {', '.join(tables)}")
    require(asked.seeds >= 1, "--seeds", asked.seeds, "at least 1")
    require(asked.scale > 0, "--scale", asked.scale, "a number above 0")
    require(asked.jobs is None or asked.jobs >= 1, "--jobs", asked.jobs, "at least 1")
    return asked


def main(arguments: Sequence[str]) -> int:
    """Run the door and return the exit code."""
    tables = load_published()
    console = make_console()
    try:
        asked = parse(arguments, tables)
        if asked.list or asked.table is None:
            some = {asked.table: tables[asked.table]} if asked.table else tables
            console.print(listing(some, asked.rows, asked.output))
            return 0
        table = tables[asked.table]
        cells = table.cells(asked.rows, asked.methods)
        found = reproduce(
            table, cells, asked, asked.output / (table.runs or asked.table)
        )
    except CflError as error:
        return report(error)
    rows = lines(table, cells, found)
    reasons = [reason for measured in found.values() for reason in measured.reasons]
    if asked.markdown:
        print(markdown(rows))
        for reason in reasons:
            print(f"\n{reason}")
    else:
        part = "" if asked.scale == 1 else f", after {asked.scale:g} of the rounds"
        title = f"{table.title}; {table.unit}{part}"
        console.print(draw(title, rows, "\n".join(reasons)))
    return int(bool(reasons))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
