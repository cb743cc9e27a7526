"""A limit on the time that one client's task may take."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from cfl_flower.errors import TaskTimeoutError

_armed: list[bool] = []
"""Not empty inside of `interruptible`; faster than asking the signal module."""


def _interrupt(signum: int, frame: FrameType | None) -> None:
    raise TaskTimeoutError("no result in time; see system.task_timeout")


@contextmanager
def interruptible() -> Iterator[None]:
    """Enable `time_limit` in the body.

    Needs the main thread and POSIX signals, which Ray workers and SuperNode processes
    have; elsewhere only the server's time-out limits a task.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or not hasattr(signal, "setitimer"):
        yield
        return
    previous = signal.signal(signal.SIGALRM, _interrupt)
    _armed.append(True)
    try:
        yield
    finally:
        _armed.pop()
        signal.signal(signal.SIGALRM, previous)


@contextmanager
def without_limit() -> Iterator[None]:
    """Pause a `time_limit` in the body."""
    left = signal.setitimer(signal.ITIMER_REAL, 0)[0] if _armed else 0.0
    try:
        yield
    finally:
        if left:
            signal.setitimer(signal.ITIMER_REAL, left)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TaskTimeoutError` in the body when it runs for longer, in seconds.

    With 0, and outside of `interruptible`, there is no limit.
    """
    limited = bool(seconds and _armed)
    if limited:
        signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        if limited:
            signal.setitimer(signal.ITIMER_REAL, 0)
