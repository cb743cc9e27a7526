"""Runs as jobs of a cluster, by submitit: SLURM's, or processes of this machine."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cfl_flower.config.overrides import first_line, parse, split
from cfl_flower.errors import ConfigError
from cfl_flower.runs.reading import finished
from cfl_flower.settings import require_package
from simulations.batch.jobs import Job
from simulations.run import main

DEFAULTS = {"name": "cfl-flower", "timeout_min": 24 * 60, "stderr_to_stdout": True}
"""What jobs ask for where nobody says more: submitit's own limit is five minutes."""


class Work:
    """What a job does, as submitit calls it."""

    def __call__(self, line: str) -> None:
        """Carry out the run of these overrides; end with its exit code if it fails."""
        if code := main(split(line)):
            sys.exit(code)

    def checkpoint(self, line: str) -> Any:
        """Return what goes on in the next job, when the time of this one is up."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, line)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add where the jobs go, as `submit`, and what they ask for, as `resource`."""
    add = parser.add_argument
    add("--submit", choices=["slurm", "local"], help="submit what is not finished")
    words = "what each job asks for, as submitit calls it: timeout_min=240"
    add("--resource", action="append", default=[], metavar="KEY=VALUE", help=words)


def without_options(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a command without those that submit it."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    add_options(parser)
    return parser.parse_known_args(list(arguments))[1]


def submit(jobs: Sequence[Job], root: Path, asked: argparse.Namespace) -> str:
    """Submit what is not finished, on SLURM as one array, and say so.

    Raises `ConfigError` without submitit, or if the cluster or a resource is refused.
    """
    require_package("submitit", "--submit", asked.submit)
    from submitit import AutoExecutor

    resources = {item.key_or_group: item.value() for item in parse(asked.resource)}
    most = {"slurm_array_parallelism": asked.jobs}
    waiting = [job.line for job in jobs if not finished(job.config)]
    logs = root / "jobs"
    try:
        executor = AutoExecutor(logs, asked.submit)
        executor.update_parameters(**DEFAULTS | most | resources)
        if waiting:
            executor.map_array(Work(), waiting)
    except (AssertionError, NameError, RuntimeError, TypeError, ValueError) as error:
        raise ConfigError(f"--submit={asked.submit}: {first_line(error)}") from error
    sent = f"{len(waiting)} jobs submitted to {asked.submit}, logs in {logs}"
    return f"{sent}; when they end, the tables are shown by"
