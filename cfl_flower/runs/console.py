"""Where a run prints, and how much."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console
from rich.table import Column, Table

from cfl_flower.errors import ERROR_MARK, CflError, one_line

CONSOLE = "CFL_FLOWER_CONSOLE"
"""Environment variable: a file that gets the run's lines instead of stdout, which
Flower mixes with its own."""

DONE_MARK = "cfl-flower done"
"""The last line of such a file, once all of its runs are saved."""

VERBOSITY = "CFL_FLOWER_VERBOSITY"
"""Environment variable: one of `Verbosity`, how much a run says."""

WATCHED = "CFL_FLOWER_WATCHED"
"""Environment variable: a folder that gets a file for each run, with its folder."""


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


def fitting(table: Table, width: int) -> list[Table]:
    """Divide a table that is too wide into several, each with its first column.

    They have neither title nor caption, which would be as narrow as they are. Headings
    may be broken between words, and the texts of cells are not.
    """
    first, *others = table.columns
    least = {id(each): _width(each, broken=True) for each in table.columns}
    least[id(first)] = min(least[id(first)], width // 2)
    parts: list[list[Column]] = [[first]]
    for column in others:
        together = [*parts[-1], column]
        if _room(together, least, width) < 0 and len(parts[-1]) > 1:
            parts.append([first, column])
        else:
            parts[-1] = together
    found = []
    for part in parts:
        piece = copy(table)
        piece.title = None
        piece.caption = None
        piece.show_edge = False
        more = max(_room(part, least, width), 0) // len(part)
        piece.columns = [
            replace(each, _index=place, width=min(_width(each), least[id(each)] + more))
            for place, each in enumerate(part)
        ]
        found.append(piece)
    return found


def _room(columns: Sequence[Column], sizes: Mapping[int, int], width: int) -> int:
    """Return the characters that are left beside columns, their lines and blanks."""
    return width + 1 - sum(3 + sizes[id(each)] for each in columns)


def _width(column: Column, broken: bool = False) -> int:
    """Return the characters of the longest line, or word if headings are broken."""
    heading = str(column.header)
    texts = heading.split() if broken else [heading]
    lines = "\n".join([*texts, *map(str, column.cells)]).split("\n")
    return max(map(cell_len, lines))


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
