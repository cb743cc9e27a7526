"""A limit on the time that one client's task may take."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from cfl_flower.errors import TaskTimeoutError


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TaskTimeoutError` in the body when it runs for longer.

    Needs the main thread and POSIX signals, which Ray workers and SuperNode processes
    have; elsewhere the body runs without a limit, and the server's time-out counts.

    Parameters
    ----------
    seconds : float
        0 for no limit.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if not seconds or not in_main or not hasattr(signal, "setitimer"):
        yield
        return

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise TaskTimeoutError(f"no result within {seconds:g} s (system.task_timeout)")

    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
