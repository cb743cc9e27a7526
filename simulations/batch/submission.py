"""Runs as jobs of a cluster, by submitit: SLURM's, or processes of this machine."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cfl_flower.config.overrides import first_line, parse, split
from cfl_flower.errors import ConfigError
from cfl_flower.runs.directory import FAILURE
from cfl_flower.runs.reading import finished
from cfl_flower.settings import require_package
from simulations.batch.jobs import Job
from simulations.run import main

if TYPE_CHECKING:
    from submitit.helpers import DelayedSubmission

JOBS = "jobs"
"""The folder of submitit's files and of what jobs say, beside those of the runs."""

DEFAULTS = {"name": "cfl-flower", "timeout_min": 24 * 60, "stderr_to_stdout": True}
"""What jobs ask for where nobody says more: submitit's own limit is five minutes."""


class Work:
    """What a job does, as submitit calls it."""

    def __call__(self, line: str) -> None:
        """Carry out the run of these overrides; end with its exit code if it fails."""
        if code := main(split(line)):
            sys.exit(code)

    def checkpoint(self, line: str) -> DelayedSubmission:
        """Return what goes on in the next job, when the time of this one is up."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, line)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add where the jobs go, as `submit`, and what they ask for, as `resource`."""
    add = parser.add_argument
    words = "submit a job for each run that is not finished, and end"
    add("--submit", choices=["slurm", "local"], help=words)
    words = "what each job asks for, as submitit calls it: timeout_min=240"
    add("--resource", action="append", default=[], metavar="KEY=VALUE", help=words)


def without_options(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a command without those that submit it.

    Examples
    --------
    >>> without_options(["seed=0", "--submit", "local", "--resource=nodes=1", "-q"])
    ['seed=0', '-q']
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    add_options(parser)
    return parser.parse_known_args(list(arguments))[1]


def submit(
    jobs: Sequence[Job],
    folder: Path,
    cluster: str,
    resources: Sequence[str],
    most: int | None,
) -> int:
    """Submit what is not finished, and return how many jobs that is.

    On SLURM they are one array, of which at most so many go on at a time. Raises
    `ConfigError` without submitit, or if the cluster or a resource is refused.
    """
    require_package("submitit", "--submit", cluster, "slurm")
    from submitit import AutoExecutor

    asked = {item.key_or_group: item.value() for item in parse(resources)}
    limit = {"slurm_array_parallelism": most}
    waiting = [job for job in jobs if not finished(job.config)]
    try:
        executor = AutoExecutor(folder, cluster)
        executor.update_parameters(**DEFAULTS | limit | asked)
        for job in waiting:
            (job.folder / FAILURE).unlink(missing_ok=True)
        if waiting:
            executor.map_array(Work(), [job.line for job in waiting])
    except (AssertionError, NameError, TypeError, ValueError) as error:
        raise ConfigError(f"--resource: {first_line(error)}") from error
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"--submit={cluster}: {first_line(error)}") from error
    return len(waiting)
