"""A published table, run here and printed beside the published figures.

    python -m simulations.reproduce --list
    python -m simulations.reproduce flexcfl_table3 --rows synthetic_mclr
    python -m simulations.reproduce flexcfl_table3 --rows mnist --scale 0.1 --seeds 1

Runs are kept below `--output`: the same command goes on where it was interrupted, and
does nothing again that is finished. The published figures are in published.yaml. Exit
codes as `simulations.run`; 1 also if a run failed, whose reason the table shows.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, stdev

import yaml
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from cfl_flower.config import RunConfig, compose_config
from cfl_flower.errors import CflError, ConfigError
from cfl_flower.overrides import quoted
from cfl_flower.settings import require
from cfl_flower.types import Json
from simulations.run import report, run

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
        The key of `summary.json` whose accuracy is compared: ``best`` or ``final``.
    tolerance : float
        Points within which a figure counts as reproduced.
    methods : dict of str to list of str
        The overrides of each method.
    columns : list of str
        The methods in the table's order.
    rows : dict
        The overrides and the values of each row.
    """

    title: str
    source: str
    measure: str
    tolerance: float
    methods: Mapping[str, list[str]]
    columns: list[str]
    rows: Mapping[str, Mapping[str, Json]]

    def cells(self, rows: Sequence[str], methods: Sequence[str]) -> list[Cell]:
        """Return the cells of the rows and methods whose names start as asked.

        Raises
        ------
        ConfigError
            If nothing does.
        """
        found = [
            Cell(name, method, value, [*row["overrides"], *self.methods[method]])
            for name, row in self.rows.items()
            for method, value in zip(self.columns, row["values"], strict=True)
            if (not rows or name.startswith(tuple(rows)))
            and (not methods or method in methods)
        ]
        known = f"rows {', '.join(self.rows)} and methods {', '.join(self.columns)}"
        require(bool(found), "rows or methods", [*rows, *methods], known)
        return found


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
    return compose_config([*cell.overrides, f"rounds={rounds}", *fixed])


def finished(config: RunConfig) -> dict[str, Json] | None:
    """Return the summary of a run if it is complete."""
    path = Path(config.output_dir) / "summary.json"
    if not path.exists():
        return None
    summary: dict[str, Json] = json.loads(path.read_text(encoding="utf-8"))
    return summary if summary["rounds"] == config.rounds else None


def work(overrides: list[str]) -> str:
    """Carry out one run in a process of its own; return why it failed, or nothing."""
    config = compose_config(overrides)
    folder = Path(config.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log.txt").open("a", encoding="utf-8") as log, redirect_stdout(log):
        try:
            run(config)
        except CflError as error:
            return str(error)
    return ""


def reproduce(
    table: Published, cells: list[Cell], arguments: argparse.Namespace, root: Path
) -> dict[tuple[str, str], Measured]:
    """Run what is not finished, several at a time; return what each cell came to.

    Raises
    ------
    ConfigError
        If any run has bad input, before the first starts.
    """
    jobs = {
        (cell.row, cell.method, seed): make_job(cell, seed, arguments.scale, root)
        for cell in cells
        for seed in range(arguments.seeds)
    }
    found = {(cell.row, cell.method): Measured() for cell in cells}
    waiting = {key: job for key, job in jobs.items() if finished(job) is None}
    context = get_context("spawn")
    console = Console(file=sys.stderr)
    with (
        ProcessPoolExecutor(arguments.jobs, context, max_tasks_per_child=1) as pool,
        Progress(console=console) as progress,
    ):
        bar = progress.add_task(table.title, total=len(waiting))
        futures = {
            pool.submit(work, job.overrides): key for key, job in waiting.items()
        }
        for future in as_completed(futures):
            row, method, seed = futures[future]
            reason = _outcome(future)
            if reason:
                found[row, method].reasons.append(f"seed {seed}: {reason}")
            progress.console.print(f"{row} {method} seed {seed} {reason or 'done'}")
            progress.advance(bar)
    for (row, method, _), job in jobs.items():
        if summary := finished(job):
            accuracy = summary[table.measure]["accuracy"]
            found[row, method].values.append(100 * accuracy)
    return found


def _outcome(future: object) -> str:
    """Return why a run failed, whether it said so or its process died."""
    try:
        return str(future.result())  # type: ignore[attr-defined]
    except Exception as error:  # noqa: BLE001 - a failed run must not hide the others
        return f"{type(error).__name__}: {error}"


def lines(
    table: Published, cells: Iterable[Cell], found: Mapping[tuple[str, str], Measured]
) -> list[list[str]]:
    """Return row, method, ours, published, difference and verdict of each cell."""
    result = []
    for cell in cells:
        measured = found[cell.row, cell.method]
        published = "-" if cell.published is None else f"{cell.published:.1f}"
        head = [cell.row, cell.method]
        if not measured.values:
            reason = (measured.reasons or ["not run"])[0]
            result.append([*head, "failed", published, "-", reason])
            continue
        mean = fmean(measured.values)
        spread = f" ± {stdev(measured.values):.1f}" if len(measured.values) > 1 else ""
        gap = None if cell.published is None else mean - cell.published
        result.append(
            [
                *head,
                f"{mean:.1f}{spread}",
                published,
                "-" if gap is None else f"{gap:+.1f}",
                verdict(gap, table.tolerance),
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


def draw(title: str, rows: Iterable[Sequence[str]]) -> Table:
    """Lay a table out for the terminal."""
    table = Table(title=title, title_justify="left")
    for name in HEADER:
        number = name in ("ours", "published", "difference")
        table.add_column(name, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    return table


def markdown(rows: Iterable[Sequence[str]]) -> str:
    """Lay a table out for a document."""
    rule = ("---", "---", "---:", "---:", "---:", "---")
    return "\n".join("| " + " | ".join(row) + " |" for row in (HEADER, rule, *rows))


def listing(tables: Mapping[str, Published]) -> Table:
    """List all tables and rows with the dataset that each needs."""
    result = Table(title="Published tables", title_justify="left")
    for name in ("table", "row", "methods", "data", "rounds x participants"):
        result.add_column(name)
    for name, table in tables.items():
        for row, entry in table.rows.items():
            first = [*entry["overrides"], *table.methods[table.columns[0]]]
            try:
                config = compose_config(first)
            except ConfigError as error:
                result.add_row(name, row, str(len(table.columns)), str(error), "")
                continue
            cost = f"{config.rounds} x {config.participants}"
            data = f"{config.names['dataset']}: here"
            result.add_row(name, row, str(len(table.columns)), data, cost)
    return result


def parse(arguments: Sequence[str], tables: Iterable[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", nargs="?", choices=list(tables))
    parser.add_argument("--list", action="store_true", help="show what there is")
    parser.add_argument("--rows", nargs="+", default=[], help="that start so")
    parser.add_argument("--methods", nargs="+", default=[])
    parser.add_argument("--seeds", type=int, default=1, help="how many, from 0 on")
    parser.add_argument("--scale", type=float, default=1.0, help="of the rounds")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="at a time")
    parser.add_argument("--output", type=Path, default=Path("outputs/reproduce"))
    parser.add_argument("--markdown", action="store_true", help="print it as Markdown")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Run the door and return the exit code."""
    tables = load_published()
    asked = parse(arguments, tables)
    console = Console()
    if asked.list or asked.table is None:
        console.print(listing(tables))
        return 0
    table = tables[asked.table]
    try:
        require(asked.seeds >= 1, "--seeds", asked.seeds, "at least 1")
        require(asked.scale > 0, "--scale", asked.scale, "a number above 0")
        require(asked.jobs >= 1, "--jobs", asked.jobs, "at least 1")
        cells = table.cells(asked.rows, asked.methods)
        found = reproduce(table, cells, asked, asked.output / asked.table)
    except CflError as error:
        return report(error)
    rows = lines(table, cells, found)
    if asked.markdown:
        print(markdown(rows))
    else:
        console.print(draw(f"{table.title}; accuracy in %, {table.measure}", rows))
    return int(any(measured.reasons for measured in found.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
