"""Processes that one starts, and that end with it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from cfl_flower.aliases import HOME

SAFE_PATH = "PYTHONSAFEPATH"
"""Environment variable: Python does not put the current folder first in its path."""

PATH = "PYTHONPATH"
"""Environment variable: folders that Python puts first in its path."""


def end_with_parent() -> None:
    """Wait until the process that started this one has gone, even by -9; end this one.

    In a thread: this process may be busy.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGKILL)


def python_path() -> str:
    """Return the folders in which Python finds here what it imports, in their order.

    That of this package is among them, even if it was the current one.
    """
    folders = list(filter(None, sys.path))
    home = str(HOME)
    return os.pathsep.join(folders if home in folders else [home, *folders])


@contextmanager
def as_imported_here() -> Iterator[None]:
    """Let new processes import what this one does, from the same checkout.

    Not the caller's script, which may be unguarded; nor what lies in the current
    folder, where an installed command may find a checkout of this project.
    """
    script = sys.modules["__main__"]
    before = {name: os.environ.get(name) for name in (SAFE_PATH, PATH)}
    sys.modules["__main__"] = ModuleType("__main__")
    os.environ[SAFE_PATH] = "1"
    os.environ[PATH] = python_path()
    try:
        yield
    finally:
        sys.modules["__main__"] = script
        for name, value in before.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value
