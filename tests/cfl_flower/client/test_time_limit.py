from __future__ import annotations

import signal
import threading
import time

import pytest

from cfl_flower.client.time_limit import interruptible, time_limit
from cfl_flower.errors import TaskTimeoutError


@pytest.mark.parametrize("work", [lambda: time.sleep(30), lambda: spin(30)])
def test_work_is_interrupted_at_its_limit(work: object) -> None:
    with (
        interruptible(),
        pytest.raises(TaskTimeoutError, match=r"system\.task_timeout"),
        time_limit(0.05),
    ):
        work()  # type: ignore[operator]


def spin(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def test_the_next_task_has_a_limit_of_its_own() -> None:
    with interruptible():
        with time_limit(0.05):
            pass
        time.sleep(0.1)
        with pytest.raises(TaskTimeoutError), time_limit(0.05):
            time.sleep(30)


def test_a_time_limit_restores_signal_handlers() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with interruptible(), time_limit(10):
        pass
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_a_limit_of_zero_seconds_is_no_limit() -> None:
    with interruptible(), time_limit(0):
        assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_a_thread_runs_without_a_limit_of_its_own() -> None:
    finished = []

    def work() -> None:
        with interruptible(), time_limit(0.01):
            time.sleep(0.05)
            finished.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert finished == [True]
