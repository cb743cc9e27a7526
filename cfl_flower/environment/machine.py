"""The machine: its cores, its memory, and the processes that one starts on it.

A child process ends with the process that started it.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any

from cfl_flower.aliases import HOME


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


ALLOCATIONS = 10_000
"""New objects after which Python looks for those of them that nobody can reach."""

TRIM_THRESHOLD = -1
"""glibc's number of the option how much free memory is kept at the heap's end."""

MMAP_THRESHOLD = -3
"""glibc's number of the option from which size on an array has pages of its own."""

KEPT_BYTES = 2**27
"""Free memory that a process keeps at most at its heap's end."""

LARGEST_KEPT = 2**25
"""Bytes of the largest array that is not given back at once, the most glibc allows."""


def import_module(name: str) -> ModuleType:
    """Import a module, with Python's search for unreachable objects paused.

    An import keeps what it makes. To look through that again and again took a tenth of
    the time until the first round.
    """
    if name in sys.modules or not gc.isenabled():
        return importlib.import_module(name)
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        # Together they make what is new old, and what is old is seldom searched.
        gc.freeze()
        gc.unfreeze()
        gc.enable()


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
    # A message of Flower's refers to itself, and Python looks rarely for such.
    gc.collect(1)
    if trim := _find("malloc_trim"):
        trim(0)


def keep_free_memory() -> None:
    """Let the C library keep what is freed for the next models.

    It gives large arrays back to the system at once, or not, by what was freed before:
    in some runs each round took new memory, a tenth of the time of an MLP's.
    """
    if option := _find("mallopt"):
        option(TRIM_THRESHOLD, KEPT_BYTES)
        option(MMAP_THRESHOLD, LARGEST_KEPT)


def total_memory() -> float:
    """Return this machine's memory in bytes, infinity where Python does not know it."""
    if not hasattr(os, "sysconf"):
        return float("inf")
    return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


@cache
def _find(name: str) -> Any:
    """Return a function of glibc; None where the C library is another one."""
    try:
        return getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):
        return None


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
