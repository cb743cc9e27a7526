"""A published table, run here and printed beside the published figures.

    python -m simulations.reproduce --list                   # all tables and rows
    python -m simulations.reproduce flexcfl_table3 --list    # with data and sizes
    python -m simulations.reproduce flexcfl_table3 --rows synthetic_mclr
    python -m simulations.reproduce flexcfl_table3 --rows mnist --scale 0.1 --seeds 1
    python -m simulations.reproduce fielding_figure4 --rows mnist --data-dir FOLDER
    python -m simulations.reproduce flexcfl_table3 --rows mnist_mclr --check

Runs are kept below `--output`: the same command resumes what was interrupted and does
not repeat what is finished. `--check` runs again, elsewhere, what recorded.json has,
and says whether the figures are the same. The published figures are in published.yaml,
which also says where to see what this command does not run. Datasets are looked for in
`--data-dir`; `--download` fetches those that torchvision knows into it. Exit codes as
`simulations.run`; 1 also if a run failed, with the reason below the table, or if a
figure is not what was recorded.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from cfl_flower.analysis.leads import TESTED
from cfl_flower.analysis.method_tables import Table
from cfl_flower.config.options import ROUNDS
from cfl_flower.errors import ConfigError
from cfl_flower.runs.console import make_console
from cfl_flower.settings import require
from cfl_flower.types import Json
from simulations.batch.jobs import Job
from simulations.papers.catalogue import list_elsewhere, list_tables
from simulations.papers.measured import HEADER, TEXTS, Outcome, lines
from simulations.papers.published import (
    Cell,
    PublishedTable,
    load_elsewhere,
    load_tables,
    suffix,
)
from simulations.papers.recorded import differences, figure_name, load, record
from simulations.shell.terminal import Parser, command, count
from simulations.study import Study, add_data, check, compose_here


class Reproduction(Study):
    """The runs of a published table."""

    def job(self, cell: Cell, seed: int) -> Job:
        """Compose one run of a cell, or raise a `ConfigError`."""
        scale = self.options.scale
        fixed = [f"seed={seed}"]
        if self.options.gpus:
            fixed.append(f"gpus_per_worker={self.options.gpus:g}")
        if scale != 1:
            config = compose_here(cell.overrides, self.options)
            fixed += scaled_times(config.resolved, scale)
        folder = Path(self.options.output, cell.folder, cell.row)
        place = folder / f"{cell.method}-s{seed}{suffix(scale)}"
        label = f"{cell.row} {cell.method} seed {seed}"
        return self.add(label, place, [*cell.overrides, *fixed])


def scaled_times(resolved: Mapping[str, Json], scale: float) -> list[str]:
    """Return the overrides of a shorter run in which all happens at the same part.

    Data change, devices come and go, and methods begin something or are told of drifts:
    FedCCFA and FedFM align features from a round T_s on. What happens after the first
    round never comes to happen in it, nor what happens in the last one after that.

    Examples
    --------
    >>> drift = {"rounds": [2, 101], "every": 10, "first": 2, "window": 20}
    >>> scaled_times({"rounds": 200, "drift": drift}, 0.3)
    ['rounds=60', 'drift.rounds=[2,31]', 'drift.every=3', 'drift.window=6', \
'drift.first=2']
    >>> scaled_times({"rounds": 200, "drift": {"rounds": [101, 111, 121]}}, 0.05)
    ['rounds=10', 'drift.rounds=[6,7,8]']
    >>> scaled_times({"rounds": 11, "devices": {"joins": [11]}}, 0.2)
    ['rounds=2', 'devices.joins=[2]']
    >>> scaled_times({"rounds": 20, "strategy": {"start": 20}}, 0.3)
    ['rounds=6', 'strategy.start=6']
    >>> scaled_times({"rounds": 20, "strategy": {"start": "omega"}}, 0.3)
    ['rounds=6']
    """
    rounds = resolved["rounds"]
    total = max(1, round(rounds * scale))

    def moment(round_: int) -> int:
        later = 1 + round((round_ - 1) * scale)
        return max(min(round_, 2), min(later, total) if round_ <= rounds else later)

    found = [f"rounds={total}"]
    drift = resolved.get("drift", {})
    for place in ("drift.rounds", *ROUNDS):
        group, key = place.split(".")
        moments: list[int] = []
        for each in resolved.get(group, {}).get(key) or []:
            # One after the other, however short the run is.
            moments.append(max(moment(each), moments[-1] + 1 if moments else 0))
        if moments:
            found.append(f"{place}=[{','.join(map(str, moments))}]")
    for key in ("every", "window"):
        if period := drift.get(key):
            found.append(f"drift.{key}={max(1, round(period * scale))}")
    if first := drift.get("first"):
        found.append(f"drift.first={moment(first)}")
    start = resolved.get("strategy", {}).get("start")
    if isinstance(start, int):
        found.append(f"strategy.start={round(start * scale)}")
    return found


def reproduce(
    table: PublishedTable,
    cells: Iterable[Cell],
    options: argparse.Namespace,
    tables: Mapping[str, PublishedTable],
) -> list[tuple[Cell, Outcome]]:
    """Run what is not finished, several at a time.

    Raises `ConfigError` if any run has bad input, before the first starts.
    """
    study = Reproduction(options)
    outcomes = []
    seeds = []
    for cell in cells:
        outcome = Outcome()
        reference = table.reference(cell, tables)
        outcomes.append((cell, outcome))
        both = [cell, reference] if reference else cell.parts
        for seed in range(options.seeds):
            seeds.append((outcome, seed, [study.job(each, seed) for each in both]))
    every = list(study.jobs.values())
    check(every)
    reasons = study.carry_out(every, table.title)
    for outcome, seed, jobs in seeds:
        outcome.add(seed, table, jobs, reasons)
    return outcomes


def check_recorded(
    table: PublishedTable,
    cells: Iterable[Cell],
    options: argparse.Namespace,
    tables: Mapping[str, PublishedTable],
) -> int:
    """Run again what was recorded; return 1 if a figure is another one."""
    known = load()["figures"]
    some = [c for c in cells if figure_name(table, c, options.scale) in known]
    require(bool(some), "--check", table.name, "a row whose figures were recorded")
    for cell in some:
        kept = known[figure_name(table, cell, options.scale)]["values"]
        for seed in range(options.seeds):
            place = f"{table.name} {cell.row} {cell.method}, seed {seed}"
            require(str(seed) in kept, "--check", place, f"seeds {', '.join(kept)}")
    with TemporaryDirectory() as folder:
        options.output = Path(folder)
        outcomes = reproduce(table, some, options, tables)
    wrong = [reason for _, outcome in outcomes for reason in outcome.reasons]
    wrong += differences(table, outcomes, options.scale)
    same = "the same to four digits as recorded"
    print(*(wrong or [f"{len(some)} figures of {table.name} are {same}"]), sep="\n")
    return int(bool(wrong))


def parse(arguments: Sequence[str], tables: Iterable[str]) -> argparse.Namespace:
    """Read the command line, or raise a `ConfigError`."""
    parser = Parser("reproduce", __doc__)
    add = parser.add_argument
    add("table", nargs="?")
    add("--list", action="store_true", help="list tables, rows, data and costs")
    add("--rows", nargs="+", default=[], help="names of rows, or how they begin")
    add("--methods", nargs="+", default=[])
    add("--seeds", type=count, default=1, help="number of seeds, from 0 on")
    words = "of the rounds, the drift's rounds and T_s"
    add("--scale", type=float, default=1.0, help=words)
    add("--output", type=Path, default=Path("outputs/reproduce"))
    add_data(parser)
    add("--gpus", type=float, default=0.0, help="of each worker, such as 1 or 0.5")
    add = parser.add_mutually_exclusive_group().add_argument
    add("--record", action="store_true", help="keep the figures in recorded.json")
    add("--check", action="store_true", help="run anew what is in recorded.json")
    parser.add_many_runs()
    options = parser.parse_args(arguments)
    if found := load_elsewhere().get(options.table):
        raise ConfigError(f"{options.table} is not run by this command: {found.where}")
    known = options.table is None or options.table in tables
    require(known, "table", options.table, f"one of {', '.join(tables)}")
    ok = 0 < options.scale < math.inf
    require(ok, "--scale", options.scale, "a number above 0")
    return options


@command
def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit code."""
    tables = load_tables()
    console = make_console()
    options = parse(arguments, tables)
    if options.list or options.table is None:
        some = {options.table: tables[options.table]} if options.table else tables
        listed, notes = list_tables(some, options)
        console.print(listed)
        for number, note in enumerate(notes, start=1):
            console.print(f"{number}. {note}", highlight=False, markup=False)
        if options.table is None:
            words = "TABLE --list says how large runs are, and which data are here"
            console.print(words, highlight=False)
        if options.table is None and not options.rows:
            list_elsewhere(console)
        return 0
    table = tables[options.table]
    cells = table.cells(options.rows, options.methods)
    if options.check:
        return check_recorded(table, cells, options, tables)
    outcomes = reproduce(table, cells, options, tables)
    if options.record:
        record(table, outcomes, options.scale)
    rows = lines(table, outcomes, options.scale)
    reasons = [reason for _, outcome in outcomes for reason in outcome.reasons]
    tested = any(row[HEADER.index("lead")] != "-" for row in rows)
    notes = [TESTED, *reasons] if tested else reasons
    part = "" if options.scale == 1 else f", after {options.scale:g} of the rounds"
    title = f"{table.title}; {table.unit}{part}"
    shown = Table(title, HEADER, rows, "\n".join(notes))
    if options.markdown:
        print(shown.markdown(TEXTS), *(f"\n{note}" for note in notes), sep="\n")
    else:
        console.print(shown.draw(left=TEXTS), markup=False)
    return int(bool(reasons))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
