"""A published table, run here and printed beside the published figures.

    python -m simulations.reproduce --list                   # and what each costs here
    python -m simulations.reproduce flexcfl_table3 --list    # of one table
    python -m simulations.reproduce flexcfl_table3 --rows synthetic_mclr
    python -m simulations.reproduce flexcfl_table3 --rows mnist --scale 0.1 --seeds 1
    python -m simulations.reproduce fielding_figure4 --rows mnist --data-dir FOLDER

Runs are kept below `--output`: the same command goes on where it was interrupted, and
does nothing again that is finished. The published figures are in published.yaml, and so
is where to see what no run of this door makes. Datasets are looked for in `--data-dir`,
and those that torchvision knows are fetched into it with `--download`. Exit codes as
`simulations.run`; 1 also if a run failed, whose reason the table shows.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev

from rich.markup import escape
from rich.table import Table

from cfl_flower.config.compose import RunConfig
from cfl_flower.config.overrides import quoted
from cfl_flower.errors import CflError, ConfigError
from cfl_flower.runs.directory import check_output_dir
from cfl_flower.runs.reading import broken, read_finished
from cfl_flower.server_app import make_console
from cfl_flower.settings import require
from cfl_flower.types import Json
from simulations.catalogue import compose_here, listing, show_elsewhere
from simulations.jobs import Job, at_once, carry_out
from simulations.published import (
    Cell,
    Published,
    load_elsewhere,
    load_published,
)
from simulations.run import report
from simulations.terminal import Parser


@dataclass
class Measured:
    """What came of a cell.

    Attributes
    ----------
    values : list of float
        One for each finished seed.
    reasons : list of str
        Why other seeds failed.
    never : int
        Seeds that never became as good as the run that they are compared with.
    """

    values: list[float] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    never: int = 0

    def take(
        self, table: Published, jobs: Sequence[Job], reasons: Mapping[str, str]
    ) -> None:
        """Add a seed: its run, and the one that it is compared with, if there is one.

        Raises
        ------
        ConfigError
            If their files cannot be read.
        """
        for job in jobs:
            if reason := reasons.get(job.config.output_dir):
                self.reasons.append(f"{job.label} failed: {reason}")
        runs = [run for job in jobs if (run := read_finished(job.config))]
        if len(runs) < len(jobs):
            return
        try:
            value = table.value(*runs)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise broken(jobs[0].folder / "rounds.jsonl", error) from error
        if value is None:
            self.never += 1
        else:
            self.values.append(value)

    def told(self, decimals: int) -> str:
        """Say mean and deviation."""
        if not self.values:
            return "never" if self.never else "failed"
        many = len(self.values) > 1
        end = f" ± {stdev(self.values):.{decimals}f}" if many else ""
        return f"{fmean(self.values):.{decimals}f}{end}"

    def judged(self, gap: float | None, tolerance: float) -> str:
        """Say how it compares with what was published, and what is not in it."""
        if not self.values:
            return ""
        said = verdict(gap, tolerance)
        said += f", without {self.never} never" if self.never else ""
        without = len(self.reasons)
        return said + (f", without {without} failed" if without else "")


def make_job(cell: Cell, seed: int, asked: argparse.Namespace) -> RunConfig:
    """Compose and check one run of a cell; it goes on if it was interrupted.

    Raises
    ------
    ConfigError
    """
    scale = asked.scale
    part = "" if scale == 1 else f"-x{scale:g}"
    folder = asked.output / cell.folder / cell.row / f"{cell.method}-s{seed}{part}"
    fixed = [f"seed={seed}", "engine=inprocess", "resume=true"]
    fixed.append(f"output_dir={quoted(str(folder.absolute()))}")
    config = compose_here([*cell.overrides, *fixed], asked)
    if scale == 1:
        return config
    rounds = max(1, round(config.rounds * scale))
    drift = scaled_drift(config.resolved["drift"], scale)
    scaled = [*cell.overrides, f"rounds={rounds}", *drift, *fixed]
    return compose_here(scaled, asked)


def scaled_drift(drift: Mapping[str, Json], scale: float) -> list[str]:
    """Return the overrides that let the data change at the same part of a run.

    What changes after the first round never comes to change in it.

    Examples
    --------
    >>> scaled_drift({"rounds": [2, 101], "every": 1, "first": 2}, 0.3)
    ['drift.rounds=[2,31]', 'drift.every=1', 'drift.first=2']
    >>> scaled_drift({"rounds": [101, 111, 121]}, 0.05)
    ['drift.rounds=[6,7,8]']
    >>> scaled_drift({"rounds": [], "every": 10, "first": 1, "window": 20}, 0.1)
    ['drift.every=1', 'drift.window=2', 'drift.first=1']
    """

    def moment(round_: int) -> int:
        return max(min(round_, 2), 1 + round((round_ - 1) * scale))

    found = []
    moments: list[int] = []
    for each in drift.get("rounds") or []:
        # One after the other, however short the run is.
        moments.append(max(moment(each), moments[-1] + 1 if moments else 0))
    if moments:
        found.append(f"drift.rounds=[{','.join(map(str, moments))}]")
    if every := drift.get("every"):
        found.append(f"drift.every={max(1, round(every * scale))}")
    if window := drift.get("window"):
        found.append(f"drift.window={max(1, round(window * scale))}")
    if first := drift.get("first"):
        found.append(f"drift.first={moment(first)}")
    return found


def reproduce(
    table: Published,
    cells: Iterable[Cell],
    asked: argparse.Namespace,
    tables: Mapping[str, Published],
) -> dict[tuple[str, str], Measured]:
    """Run what is not finished, several at a time; return what each cell came to.

    Raises
    ------
    ConfigError
        If any run has bad input, before the first starts.
    """
    pairs = [
        (cell, seed, [each for each in (cell, table.mark(cell, tables)) if each])
        for cell in cells
        for seed in range(asked.seeds)
    ]
    runs: dict[tuple[str, str, str, int], Job] = {}
    for _, seed, both in pairs:
        for each in both:
            key = (each.folder, each.row, each.method, seed)
            if key not in runs:
                runs[key] = Job(_label(each, seed), make_job(each, seed, asked))
    for job in runs.values():
        check_output_dir(job.config)
        read_finished(job.config)
    most = at_once([job.config for job in runs.values()], asked.jobs)
    reasons = carry_out(list(runs.values()), most, asked.verbosity, table.title)
    found: dict[tuple[str, str], Measured] = {}
    for cell, seed, both in pairs:
        jobs = [runs[each.folder, each.row, each.method, seed] for each in both]
        measured = found.setdefault((cell.row, cell.method), Measured())
        measured.take(table, jobs, reasons)
    return found


def _label(cell: Cell, seed: int) -> str:
    return f"{cell.row} {cell.method} seed {seed}"


def lines(
    table: Published, cells: Iterable[Cell], found: Mapping[tuple[str, str], Measured]
) -> list[list[str]]:
    """Return row, method, ours, published, difference and verdict of each cell."""
    result = []
    digits = table.decimals
    for cell in cells:
        measured = found[cell.row, cell.method]
        mean = fmean(measured.values) if measured.values else None
        known = mean is not None and cell.published is not None
        gap = mean - cell.published if known else None  # type: ignore[operator]
        result.append(
            [
                cell.row,
                cell.method,
                measured.told(digits),
                "-" if cell.published is None else f"{cell.published:.{digits}f}",
                "-" if gap is None else f"{gap:+.{digits}f}",
                measured.judged(gap, table.tolerance),
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


def parse(arguments: Sequence[str], tables: Iterable[str]) -> argparse.Namespace:
    """Read the command line.

    Raises
    ------
    ConfigError
    """
    parser = Parser("reproduce", str(__doc__))
    parser.add_argument("table", nargs="?")
    parser.add_argument("--list", action="store_true", help="show what there is")
    parser.add_argument(
        "--rows", nargs="+", default=[], help="their names, or how several start"
    )
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
    parser.add_argument("--data-dir", type=Path, help="where the datasets are")
    parser.add_argument(
        "--download", action="store_true", help="fetch what torchvision can, if missing"
    )
    parser.add_argument("--markdown", action="store_true", help="print it as Markdown")
    parser.add_verbosity()
    asked = parser.parse_args(arguments)
    if where := load_elsewhere().get(asked.table):
        raise ConfigError(f"{asked.table} is no run of this door: {where}")
    known = asked.table is None or asked.table in tables
    require(known, "table", asked.table, f"one of {', '.join(tables)}")
    require(asked.seeds >= 1, "--seeds", asked.seeds, "at least 1")
    ok = 0 < asked.scale < math.inf
    require(ok, "--scale", asked.scale, "a number above 0")
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
            console.print(listing(some, asked))
            if asked.table is None and not asked.rows:
                show_elsewhere(console)
            return 0
        table = tables[asked.table]
        cells = table.cells(asked.rows, asked.methods)
        found = reproduce(table, cells, asked, tables)
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
