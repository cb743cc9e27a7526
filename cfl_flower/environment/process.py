"""Processes that one starts, and that end with it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

SAFE_PATH = "PYTHONSAFEPATH"
"""Environment variable: Python does not put the current folder first in its path."""


def end_with_parent() -> None:
    """Wait until the process that started this one has gone, even by -9; end this one.

    In a thread: this process may be busy.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def as_imported_here() -> Iterator[None]:
    """Let new processes import what this one does.

    Not the caller's script, which may be unguarded; nor what lies in the current
    folder, where an installed command may find a checkout of this project.
    """
    script = sys.modules["__main__"]
    safe = os.environ.get(SAFE_PATH)
    sys.modules["__main__"] = ModuleType("__main__")
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        sys.modules["__main__"] = script
        del os.environ[SAFE_PATH]
        if safe is not None:
            os.environ[SAFE_PATH] = safe
