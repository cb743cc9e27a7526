"""Several methods on the same stream, several at a time, and a table.

    python -m simulations.compare experiment=labels,meanings
    python -m simulations.compare strategy=fedavg,fielding seed=0,1 rounds=50
    python -m simulations.compare drift=sudden,rotate output_dir=/tmp/c

The first line is the main job, `make run`. Without `strategy=` the methods are those of
the app's default overrides. Arguments are Hydra's overrides; commas sweep, seeds share
a row, and runs on different data have tables of their own; the last table has a column
for each value of what is swept. A setting that only some methods have
(strategy.threshold=0,0.5) is theirs alone.
The references fedavg, fedavg_ft, fedavg_ls and local (below) and oracle (above)
run, too, unless `--bare` is given. Leads are over fedavg; --reference names another of
the methods. Beside the runs are a page (report.html) and its tables as CSV
and LaTeX. A run that fails does not hide the others. With an output_dir, the same
command continues after an interruption, and repeats nothing that is finished. With
`--dry-run` it says what there is to do, and ends.
Exit codes are those of `simulations.run`; 1 also if a run failed.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from cfl_flower.analysis.baselines import (
    BOUND,
    REFERENCE_METHOD,
    REFERENCES,
    require_reference,
)
from cfl_flower.config.composition import compose_plain_sweep
from cfl_flower.config.overrides import (
    OVERRIDES,
    parse,
    quoted,
    refuse_nothing,
    split,
    with_folder,
)
from cfl_flower.errors import ConfigError, InterruptedRunError, NoConceptsError
from cfl_flower.run_config import RunConfig
from cfl_flower.runs.console import Verbosity
from cfl_flower.runs.reading import (
    effective_differences,
    finished,
    read_settings,
    refuse_other_settings,
)
from simulations.batch.jobs import Job, at_once
from simulations.batch.processes import prepare
from simulations.engines.superlink import APP, PROJECT
from simulations.shell.terminal import Parser, command, make_error_console, program
from simulations.study import Study, check, has_setting

FOLDER = "compare"
"""The last word of a folder that is made up for a comparison."""


def default_overrides() -> list[str]:
    """Return the overrides of a plain `flwr run .`, from pyproject.toml."""
    # A wheel has no pyproject.toml beside its packages, and one among the commands.
    path = APP if APP.exists() else PROJECT / "pyproject.toml"
    project = tomllib.loads(path.read_text())
    return split(project["tool"]["flwr"]["app"]["config"][OVERRIDES])


def with_marks(overrides: Sequence[str]) -> list[str]:
    """Add the marks to the strategies that are compared.

    Examples
    --------
    >>> with_marks(["seed=1", "strategy=fielding,local"])
    ['seed=1', 'strategy=fedavg,fedavg_ft,fedavg_ls,fielding,local,oracle']
    """
    found = []
    for override in overrides:
        (item,) = parse([override])
        if item.key_or_group != "strategy":
            found.append(override)
            continue
        many = item.is_sweep_override()
        asked = list(item.sweep_string_iterator()) if many else [str(item.value())]
        below = [mark for mark in REFERENCES if mark not in asked]
        above = [] if BOUND in asked else [BOUND]
        found.append("strategy=" + ",".join([*below, *asked, *above]))
    return found


def by_settings(overrides: Sequence[str]) -> list[list[str]]:
    """Divide a comparison into sweeps, so that settings go to the methods with them.

    One that no method has stays, to be refused.

    Examples
    --------
    >>> by_settings(["strategy=fedavg,fielding", "strategy.threshold=0,1", "rounds=5"])
    [['strategy=choice(fedavg)', 'rounds=5'], \
['strategy=choice(fielding)', 'strategy.threshold=0,1', 'rounds=5']]
    """
    parsed = dict(zip(overrides, parse(overrides), strict=True))
    chosen = {o: i for o, i in parsed.items() if i.key_or_group == "strategy"}
    last = next(reversed(chosen.values()), None)
    if last is None or not last.is_sweep_override():
        return [list(overrides)]
    names = list(last.sweep_string_iterator())
    has = {each: [n for n in names if has_setting(n, each)] for each in overrides}
    lines: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        own = tuple(each for each in overrides if name in has[each] or not has[each])
        lines.setdefault(own, []).append(name)
    if len(lines) == 1:
        return [list(overrides)]
    found = []
    for own, some in lines.items():
        choice = f"strategy=choice({','.join(some)})"
        found.append([choice if each in chosen else each for each in own])
    return found


def plan_jobs(overrides: list[str], marks: bool, reference: str) -> list[Job]:
    """Return the runs of a comparison with its marks, or raise a `ConfigError`."""
    if not any(each.startswith("strategy=") for each in overrides):
        overrides = default_overrides() + overrides
    refuse_nothing(overrides)
    overrides = with_marks(overrides) if marks else overrides
    prepare()
    jobs = make_jobs(with_folder(overrides, FOLDER, always=True))
    require_reference([job.config.resolved for job in jobs], reference)
    return jobs


def make_jobs(overrides: Sequence[str]) -> list[Job]:
    """Compose every run before the first starts, or raise a `ConfigError`."""
    lines = [shlex.join([*line, "resume=true"]) for line in by_settings(overrides)]
    composed = compose_plain_sweep("\n".join(lines))
    # torch with the classes of all groups, once the keys are right.
    from cfl_flower.config.compose import check_settings

    checked: list[RunConfig] = []
    left_out: dict[str, ConfigError] = {}
    for each in composed:
        try:
            checked.append(check_settings(each))
        except ConfigError as error:
            mark = each.choices["strategy"] in (*REFERENCES, BOUND)
            if not (mark or isinstance(error, NoConceptsError)):
                raise
            # Each seed of a method is left out for the same reason.
            left_out[f"left out: {error}"] = error
    if not checked:
        raise next(iter(left_out.values()))
    runs = {repr({**config.resolved, "output_dir": ""}) for config in checked}
    if len(runs) < len(checked):
        said = "the same run occurs twice, as by seed=0,00"
        raise ConfigError(f"{said}; name each value once")
    for line in left_out:
        make_error_console().print(line, style="yellow", soft_wrap=True, markup=False)
    jobs = [Job(Path(each.output_dir).name, each) for each in place(checked)]
    for job in jobs:
        refuse_other_settings(job.config)
    # An error there would end the comparison after all other runs.
    check(jobs)
    return jobs


def place(configs: Sequence[RunConfig]) -> list[RunConfig]:
    """Return the runs of a comparison, each with a folder of its own.

    That is the one in which it began, whatever it is called: a comparison of one seed
    has other names for its folders than the same of several.
    """
    if len(configs) == 1:
        (only,) = configs
        configs = [_moved(only, Path(only.output_dir, only.names["strategy"]))]
    if all(has_begun(Path(config.output_dir)) for config in configs):
        return list(configs)
    root = Path(os.path.commonpath([Path(c.output_dir).parent for c in configs]))
    known = [path for path in root.glob("*/config.yaml") if has_begun(path.parent)]
    begun = {path.parent: read_settings(path) for path in sorted(known)}
    found = []
    for config in configs:
        alike = (
            folder
            for folder, settings in begun.items()
            if settings["rounds"] == config.rounds
            and not any(effective_differences(settings, config.resolved))
        )
        own = Path(config.output_dir)
        found.append(_moved(config, own if has_begun(own) else next(alike, own)))
    return found


def has_begun(folder: Path) -> bool:
    """Return whether a run has begun in a folder."""
    return (folder / "rounds.jsonl").is_file()


def _moved(config: RunConfig, folder: Path) -> RunConfig:
    resolved = {**config.resolved, "output_dir": str(folder)}
    return replace(config, output_dir=str(folder), resolved=resolved)


def root_of(jobs: Sequence[Job]) -> Path:
    """Return the folder that has those of all runs."""
    return Path(os.path.commonpath([job.folder.parent for job in jobs]))


def announce(jobs: Sequence[Job], arguments: Sequence[str], most: int = 1) -> None:
    """Say which runs there are, where, and how they go on."""
    from cfl_flower.config.warnings import find_warnings

    console = make_error_console()
    warnings = dict.fromkeys(line for job in jobs for line in find_warnings(job.config))
    for warning in warnings:
        console.print(warning, style="yellow", soft_wrap=True)
    methods = dict.fromkeys(job.config.names["strategy"] for job in jobs)
    seeds = {job.config.seed for job in jobs}
    waiting = [job for job in jobs if not finished(job.config)]
    lines = [
        f"methods: {', '.join(methods)}; seeds: {len(seeds)}; runs: {len(jobs)}, of "
        f"which {len(waiting)} are to be carried out, {most} at a time",
        f"in {root_of(jobs)}; after an interruption they go on by",
        f"  {again(jobs, arguments)}",
    ]
    console.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)


def again(jobs: Sequence[Job], arguments: Sequence[str]) -> str:
    """Return the command by which an interrupted comparison goes on."""
    root = str(root_of(jobs))
    placed = any(argument.startswith("output_dir=") for argument in arguments)
    folder = [] if placed else [f"output_dir={quoted(root)}"]
    return f"{program('compare')} {shlex.join([*arguments, *folder])}"


def report(jobs: Sequence[Job], reference: str, verbosity: Verbosity) -> None:
    """Write the page of the runs that have begun, and its tables, above them."""
    # Drawing would keep runs from beginning.
    from cfl_flower.analysis.saved import load_run
    from simulations.report import render

    begun = [job.folder for job in jobs if job.rounds()]
    if not begun:
        return
    page = render([load_run(folder) for folder in begun], reference)
    paths = page.write(root_of(jobs) / "report.html")
    if verbosity is not Verbosity.QUIET:
        told = f"report: {', '.join(map(str, paths))}"
        make_error_console().print(told, highlight=False, soft_wrap=True)


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line, or raise a `ConfigError`."""
    parser = Parser("compare", __doc__)
    parser.add_overrides()
    parser.add_argument("--bare", action="store_true", help="run no references")
    parser.add_argument("--reference", metavar="METHOD", default=REFERENCE_METHOD)
    words = "say what would run, and end"
    parser.add_argument("--dry-run", action="store_true", help=words)
    parser.add_many_runs()
    return parser.parse_overrides(arguments)


def carry_out_and_show(jobs: Sequence[Job], asked: argparse.Namespace) -> int:
    """Carry out what is not finished, print the tables; return the exit code."""
    reasons = Study(asked).carry_out(jobs, "compare")
    from cfl_flower.analysis.comparison import compare

    configs = [job.config for job in jobs]
    # As wide as the terminal, or COLUMNS, or 80.
    compare(configs, Console(), reasons, asked.markdown, asked.reference)
    report(jobs, asked.reference, asked.verbosity)
    return int(bool(reasons))


@command
def main(arguments: Sequence[str]) -> int:
    """Carry out what is not finished, print the tables, and return the exit code."""
    asked = parse_arguments(arguments)
    jobs = plan_jobs(asked.overrides, not asked.bare, asked.reference)
    if asked.verbosity is not Verbosity.QUIET or asked.dry_run:
        most = at_once([job.config for job in jobs], asked.jobs)
        announce(jobs, [a for a in arguments if a != "--dry-run"], most=most)
    if asked.dry_run:
        return 0
    try:
        return carry_out_and_show(jobs, asked)
    except KeyboardInterrupt as error:
        said = f"interrupted; go on by {again(jobs, arguments)}"
        raise InterruptedRunError(said) from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
