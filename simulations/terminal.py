"""What all commands share on the terminal: one-line complaints, quiet and verbose."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from cfl_flower.errors import ConfigError
from cfl_flower.runs.callbacks import Verbosity

FLAGS = (
    ("-q", "--quiet", Verbosity.QUIET, "only the result and what went wrong"),
    ("-v", "--verbose", Verbosity.VERBOSE, "every round in detail"),
)
"""Short and long name, what it sets, and what that means."""


class Parser(argparse.ArgumentParser):
    """Whose complaints are one line, as of a wrong setting.

    Parameters
    ----------
    command : str
        The module's name below `simulations`.
    description : str
    """

    def __init__(self, command: str, description: str) -> None:
        super().__init__(
            prog=f"python -m simulations.{command}",
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """Raise a `ConfigError`."""
        raise ConfigError(f"{message}; see --help")

    def add_verbosity(self) -> None:
        """Add ``-q`` and ``-v``, read as `verbosity`."""
        for short, name, verbosity, what in FLAGS:
            self.add_argument(
                short,
                name,
                dest="verbosity",
                action="store_const",
                const=verbosity,
                default=Verbosity.NORMAL,
                help=what,
            )


@contextmanager
def writable(option: str, path: Path, remedy: str) -> Iterator[None]:
    """Turn a failure to write a file that an option names into one line.

    Raises
    ------
    ConfigError
    """
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"{option}={path} cannot be written ({error.strerror}); {remedy}"
        ) from error


def make_error_console() -> Console:
    """Return the console of progress, which stays out of a redirected result."""
    console = Console(stderr=True)
    return console if console.is_terminal else Console(stderr=True, width=110)
