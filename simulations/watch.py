"""The page of runs that are under way, written anew while they go on.

    cfl-flower watch outputs/2026-01-31/12-00-00-compare

The folder is that of a run, or of several, which another command carries out. In a
browser the page loads itself anew; beside it are tables, as those of ``report``. The
command ends with the last run, or by Ctrl-C. Exit codes as `simulations.run`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from cfl_flower.analysis.saved import SavedRun, load_run
from cfl_flower.errors import ConfigError
from cfl_flower.runs.directory import FAILURE
from cfl_flower.settings import require
from simulations.batch.jobs import LOG
from simulations.report import render
from simulations.shell.terminal import Parser, command, count

SHARE = 2
"""Times as long as a page takes nothing is done: the runs need the machine."""


def read(folder: Path) -> tuple[list[SavedRun], int]:
    """Return the runs that have begun, and how many have not ended.

    One that waits has a folder with nothing but a log.
    """
    alone = (folder / "config.yaml").is_file()
    found = []
    going_on = 0
    for path in [folder] if alone else filter(Path.is_dir, sorted(folder.iterdir())):
        names = {each.name for each in path.iterdir()}
        if names - {LOG} and "config.yaml" not in names:
            continue  # it is of no run
        if not names & {"summary.json", FAILURE}:
            going_on += 1
        with suppress(ConfigError):  # before its first round it is none
            found.append(load_run(path))
    return found, going_on


def watch(folder: Path, output: Path, every: int) -> None:
    """Write the page of a folder until its last run has ended."""
    shown: object = None
    going_on = 1
    while going_on:
        began = time.monotonic()
        runs, going_on = read(folder)
        state = [
            going_on,
            *((run.folder, len(run.rounds), run.failure) for run in runs),
        ]
        if state != shown:
            print(f"{going_on} runs go on or wait, {len(runs)} are in {output}")
        if state != shown and runs:
            page = render(runs)
            again = f'<head>\n<meta http-equiv="refresh" content="{every}">'
            head = again if going_on else "<head>"
            html = page.html.replace("<head>", head, 1)
            replace(page, html=html).write(output)
        shown = state
        if going_on:
            time.sleep(max(every, SHARE * (time.monotonic() - began)))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line, or raise a `ConfigError`."""
    parser = Parser("watch", __doc__)
    add = parser.add_argument
    add("folder", type=Path, metavar="FOLDER")
    add("--output", type=Path, help="the page (default: report.html in FOLDER)")
    add("--every", type=count, default=10, help="seconds between pages (default: 10)")
    return parser.parse_args(arguments)


@command
def main(arguments: Sequence[str]) -> None:
    """Run the command and return the exit code."""
    asked = parse(arguments)
    there = asked.folder.is_dir()
    require(there, "FOLDER", asked.folder, "the folder of a run or of several")
    watch(asked.folder, asked.output or asked.folder / "report.html", asked.every)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
