"""When Python looks for what nobody can reach, and what the system gets back."""

from __future__ import annotations

import ctypes
import gc
import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any

ALLOCATIONS = 10_000
"""New objects after which Python looks for those of them that nobody can reach."""


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
    if trim := _find_trim():
        trim(0)


@cache
def _find_trim() -> Any:
    """Return glibc's `malloc_trim`; None where the C library is another one."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
