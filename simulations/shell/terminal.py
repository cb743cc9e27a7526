"""What all commands share: their options, exit codes and one-line complaints."""

from __future__ import annotations

import argparse
import atexit
import gc
import os
import re
import select
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console

from cfl_flower.aliases import require_own_packages
from cfl_flower.errors import (
    ERROR_MARK,
    CflError,
    ConfigError,
    InterruptedRunError,
    one_line,
    refused,
)
from cfl_flower.runs.console import Verbosity

FLAGS = (
    ("-q", "--quiet", Verbosity.QUIET, "only the result and what went wrong"),
    ("-v", "--verbose", Verbosity.VERBOSE, "a line for every round"),
)
"""Short and long name, what it sets, and what that means."""


UNKNOWN = re.compile(r"unrecognized arguments: (-+[\w-]+)")
"""Argparse's message for an unknown option, such as ``--rounds 5``."""


def report(error: CflError) -> int:
    """Say in one line on stderr why nothing came of it; return the exit code."""
    print(f"{ERROR_MARK}{one_line(str(error))}", file=sys.stderr)
    return error.exit_code


def command(
    work: Callable[[Sequence[str]], int | None],
) -> Callable[[Sequence[str]], int]:
    """Make a `main` of what a command does with its arguments.

    It returns the exit code: 0, what the work returns, or that of its `CflError`, which
    is reported: 2 for bad input, 1 for a failure or where nobody reads the output, and
    130 after Ctrl-C.
    """

    @wraps(work)
    def main(arguments: Sequence[str]) -> int:
        # Of what only refers to each other nothing has to be done at the end: to look
        # for it took most of a second.
        atexit.register(gc.freeze)
        try:
            require_own_packages()
            code = work(arguments) or 0
            # What cannot be written is known here, not at exit.
            sys.stdout.flush()
            return code
        except CflError as error:
            return report(error)
        except UnicodeEncodeError as error:
            remedy = "use ASCII, or a locale with UTF-8, such as C.UTF-8"
            return report(ConfigError(f"a text cannot be written ({error}); {remedy}"))
        except KeyboardInterrupt:
            return report(InterruptedRunError("interrupted"))
        except BrokenPipeError:
            if not _nobody_reads():
                raise
            # Python flushes once more at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1

    return main


def _nobody_reads() -> bool:
    """Return whether who reads stdout, such as `head`, has ended."""
    output = select.poll()
    # It may be no file, as in a notebook.
    with suppress(OSError, AttributeError):
        output.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in output.poll(0))


class Parser(argparse.ArgumentParser):
    """Reads the arguments of a module below `simulations`, whose docstring is its help.

    Complaints are one line, as of a wrong setting.
    """

    takes_overrides = False

    def __init__(self, command: str, description: str | None) -> None:
        super().__init__(
            prog=program(command),
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """Raise a `ConfigError`."""
        hint = "settings are written without dashes; " if self.takes_overrides else ""
        if unknown := UNKNOWN.match(message):
            flag = unknown[1]
            known = self._option_string_actions
            near = [it for it in known if it.startswith(flag) or f"{it}-" in flag]
            if near:
                hint = f"did you mean {near[0]}? "
        raise ConfigError(f"{message}; {hint}see --help")

    def add_overrides(self) -> None:
        """Add Hydra's overrides, read as `overrides`."""
        self.takes_overrides = True
        words = "Hydra's overrides"
        self.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help=words)

    def parse_overrides(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Read a command line with `overrides`, options before and behind them."""
        return self.parse_intermixed_args(list(arguments))

    def add_many_runs(self) -> None:
        """Add what commands of many runs share: jobs, Markdown and verbosity."""
        add = self.add_argument
        add("--jobs", type=count, help="runs at a time (default: as many as fit)")
        add("--markdown", action="store_true", help="tables as Markdown")
        self.add_verbosity()
        self.set_defaults(verbosity=Verbosity.NORMAL)

    def add_verbosity(self) -> None:
        """Add how much is said, as `verbosity`, None if it is not said."""
        store: dict[str, Any] = {"dest": "verbosity", "action": "store_const"}
        for short, name, verbosity, what in FLAGS:
            self.add_argument(short, name, **store, const=verbosity, help=what)


def program(command: str) -> str:
    """Return how a command was started: by `cfl-flower`, or as a module."""
    if Path(sys.argv[0]).stem != "cfl-flower":
        return f"python -m simulations.{command}"
    name = command.replace("choices", "list").replace(".", " ").replace("_", "-")
    return f"cfl-flower {name}"


def count(text: str) -> int:
    """Read a whole number of at least 1."""
    return natural(text, 1)


def natural(text: str, least: int = 0) -> int:
    """Read a whole number of at least 0, or of another least one."""
    if (number := int(text)) < least:
        raise argparse.ArgumentTypeError(f"{text} is not allowed; use at least {least}")
    return number


def writable(option: str, path: Path, remedy: str) -> AbstractContextManager[None]:
    """Turn a failure to write a file that an option names into a `ConfigError`."""
    return refused(f"{option}={path} cannot be written", remedy, OSError)


def make_error_console() -> Console:
    """Return the console of progress, which stays out of a redirected result."""
    console = Console(stderr=True)
    return console if console.is_terminal else Console(stderr=True, width=110)
