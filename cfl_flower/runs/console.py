"""Where a run prints, and how much."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from rich.console import Console

from cfl_flower.errors import ERROR_MARK, CflError, one_line

CONSOLE = "CFL_FLOWER_CONSOLE"
"""Environment variable: a file that gets the run's lines instead of stdout, which
Flower mixes with its own."""

DONE_MARK = "cfl-flower done"
"""The last line of such a file, once all of its runs are saved."""

VERBOSITY = "CFL_FLOWER_VERBOSITY"
"""Environment variable: one of `Verbosity`, how much a run says."""


class Verbosity(StrEnum):
    """How much a run prints."""

    QUIET = "quiet"
    NORMAL = "normal"
    VERBOSE = "verbose"


def verbosity() -> Verbosity:
    """Return how much the run is to say."""
    return Verbosity(os.environ.get(VERBOSITY, Verbosity.NORMAL))


@contextmanager
def at_verbosity(chosen: Verbosity) -> Iterator[None]:
    """Let runs of the body, and the processes that they start, say as much."""
    before = verbosity()
    os.environ[VERBOSITY] = chosen
    try:
        yield
    finally:
        os.environ[VERBOSITY] = before


def make_console() -> Console:
    """Return the console of a run; without a terminal, plain lines."""
    if path := os.environ.get(CONSOLE):
        return Console(file=Path(path).open("a", encoding="utf-8"), width=125)
    console = Console(file=sys.stdout)
    return console if console.is_terminal else Console(file=sys.stdout, width=125)


def say_done() -> None:
    """Tell the command that reads the run's lines from a file that all is saved."""
    _write_line(DONE_MARK)


def say_why(error: CflError) -> None:
    """Tell why a run ended, in one line.

    It goes to the file of `CONSOLE` if there is one, and to Flower's log, where it
    takes the place of the traceback and of the page about exit codes.
    """
    line = f"{ERROR_MARK}{one_line(str(error))}"
    _write_line(line)

    def shorten(record: logging.LogRecord) -> bool:
        if record.exc_info and record.exc_info[1] is error:
            record.msg = line
            record.args = ()
            record.exc_info = None
        return not str(record.msg).startswith("Exit Code: ")

    logging.getLogger("flwr").addFilter(shorten)


def _write_line(line: str) -> None:
    if path := os.environ.get(CONSOLE):
        with Path(path).open("a", encoding="utf-8") as lines:
            lines.write(f"{line}\n")


def clock(seconds: float) -> str:
    """Format a duration as hours, minutes and seconds.

    Examples
    --------
    >>> clock(7.4), clock(3725)
    ('0:07', '1:02:05')
    """
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
