"""What this machine has."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any

SAFE_PATH = "PYTHONSAFEPATH"
"""Environment variable: Python does not put the current folder first in its path."""

ALLOCATIONS = 10_000
"""New objects after which Python looks for those of them that nobody can reach."""


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let Python look less often for objects that only refer to each other.

    It looks at all answers of a round again and again while they are read: two fifths
    of the time of a round of 100,000 clients. At the end it looks at what is new.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(ALLOCATIONS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        # A run refers to itself, and has files open.
        gc.collect()
        gc.unfreeze()


def return_free_memory() -> None:
    """Give memory that is not in use any more back to the system, where it can be.

    The C library keeps what was freed between models that live longer: after hundreds
    of models as much again as is in use. This takes milliseconds.
    """
    if trim := _find_trim():
        trim(0)


@cache
def _find_trim() -> Any:
    """Return glibc's `malloc_trim`; None where the C library is another one."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
