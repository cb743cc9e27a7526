"""A question to many runs: which there are, carried out once, and read again.

`compare` asks it of one setting, `reproduce` of a published table, and `track` of
fixed streams on which methods are tuned.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from cfl_flower.config.composition import strategy_has
from cfl_flower.config.overrides import parse, quoted
from cfl_flower.errors import ConfigError
from cfl_flower.run_config import RunConfig
from simulations.batch.jobs import Job, at_once, carry_out
from simulations.run import check_machine
from simulations.shell.terminal import Parser

if TYPE_CHECKING:
    from cfl_flower.analysis.saved import SavedRun

FETCH = "dataset.download=true"
"""The remedy in the error of a dataset that is missing and can be fetched."""


@dataclass
class Study:
    """The runs of a question, by their folders: one of each cell and seed."""

    options: argparse.Namespace
    """The command line, with the options of `Parser.add_many_runs`."""
    jobs: dict[Path, Job] = field(default_factory=dict)

    def add(self, label: str, folder: Path, overrides: Iterable[str]) -> Job:
        """Compose a run, unless its folder has one already; it goes on where it was.

        Raises `ConfigError`.
        """
        path = folder.absolute()
        if path not in self.jobs:
            place = [f"output_dir={quoted(str(path))}", "resume=true"]
            config = compose_here([*overrides, *place], self.options)
            self.jobs[path] = Job(label, config)
        return self.jobs[path]

    def carry_out(self, jobs: Sequence[Job], title: str) -> dict[str, str]:
        """Carry out what is not finished; return why runs failed, by output_dir."""
        if not jobs:
            return {}
        most = at_once([job.config for job in jobs], self.options.jobs)
        return carry_out(jobs, most, self.options.verbosity, title)


@cache
def has_setting(method: str, override: str) -> bool:
    """Return whether a method has the setting of an override, if it is a method's."""
    (item,) = parse([override])
    group, _, path = item.key_or_group.replace("/", ".").partition(".")
    return group != "strategy" or not path or strategy_has(method, path)


def check(jobs: Iterable[Job]) -> None:
    """Raise a `ConfigError` if a run cannot go on here, or its files are damaged."""
    for job in jobs:
        check_machine(job.config)
        read([job])


def read(jobs: Iterable[Job]) -> list[SavedRun]:
    """Return the finished runs of some jobs; a `ConfigError` if files are damaged."""
    from cfl_flower.analysis.saved import read_finished  # noqa: PLC0415 - torch

    return [run for job in jobs if (run := read_finished(job.config))]


def add_data(parser: Parser) -> None:
    """Add the options that say where the data of runs are."""
    add = parser.add_argument
    add("--data-dir", type=Path, help="where the datasets are")
    add("--download", action="store_true", help="fetch missing data by torchvision")


def compose_here(overrides: Sequence[str], options: argparse.Namespace) -> RunConfig:
    """Compose a run on the data of `--data-dir`; fetch them first with `--download`.

    The run's own settings do not say that its data were fetched. The remedies in a
    `ConfigError` are this command's options.
    """
    # Both import torch.
    from cfl_flower.config.compose import compose_config  # noqa: PLC0415
    from cfl_flower.data.reading.files import fetching  # noqa: PLC0415

    if options.data_dir:
        folder = quoted(str(options.data_dir.expanduser().absolute()))
        overrides = [*overrides, f"data_dir={folder}"]
    try:
        return compose_config(overrides)
    except ConfigError as error:
        if not (options.download and FETCH in str(error)):
            raise ConfigError(_with_remedy(str(error))) from error
    with fetching(True):
        config = compose_config(overrides)
        config.dataset.load(config.data_dir)
    return compose_config(overrides)


def _with_remedy(text: str) -> str:
    """Name the options of this command where others name a setting."""
    if f" or add {FETCH}" in text:
        known = ", name their folder by --data-dir, or add --download"
        return text.replace(f" or add {FETCH}", known)
    if "put the files there" in text:
        return f"{text}, or name their folder by --data-dir"
    return text
