"""Tasks that wait for each other where they train."""

import signal
import threading
import time

import numpy as np
import pytest
import torch

from cfl_flower.client import cohort
from cfl_flower.client.cohort import cohort_size, run_cohort
from cfl_flower.client.time_limit import interruptible, time_limit
from cfl_flower.errors import TaskTimeoutError
from cfl_flower.learning.cohort_training import train_cohort
from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.learning.training import TrainingJob, train
from cfl_flower.models import FlatModel, Mclr

LOCAL = LocalTraining(steps=2)


def models(count: int) -> list[FlatModel]:
    first = FlatModel(Mclr().build((4,), 3))
    return [first.clone() for _ in range(count)]


def train_once(model: FlatModel, seed: int) -> None:
    x, y = torch.eye(4), torch.tensor([0, 1, 2, 0])
    train(model, x, y, LOCAL, np.random.default_rng(seed))


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many jobs the cohort did at a time."""
    found: list[int] = []

    def note(jobs: list[TrainingJob]) -> None:
        found.append(len(jobs))
        train_cohort(jobs)

    monkeypatch.setattr(cohort, "train_cohort", note)
    return found


def test_each_task_trains_as_often_as_it_likes(sizes):
    ours = models(4)
    theirs = [model.clone() for model in ours]
    for place, model in enumerate(theirs):
        for _ in range(place):
            train_once(model, place)

    def task(place: int) -> int:
        for _ in range(place):
            train_once(ours[place], place)
        return place

    tasks = [lambda place=place: task(place) for place in range(4)]
    assert run_cohort(tasks) == [0, 1, 2, 3]
    assert sizes == [3, 2, 1]
    for own, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(own.vector, other.vector)


def test_each_task_has_its_own_draws_of_torch():
    def task(seed: int) -> list[float]:
        torch.manual_seed(seed)
        before = float(torch.rand(()))
        train_once(models(1)[0], seed)
        return [before, float(torch.rand(()))]

    expected = [task(0), task(1)]
    assert run_cohort([lambda: task(0), lambda: task(1)]) == expected


def test_a_failure_of_the_training_is_each_waiting_tasks(monkeypatch):
    def fail(jobs: list[TrainingJob]) -> None:
        raise RuntimeError("the device is gone")

    monkeypatch.setattr(cohort, "train_cohort", fail)

    def task(trains: bool) -> str:
        try:
            if trains:
                train_once(models(1)[0], 0)
        except RuntimeError as error:
            return str(error)
        return "well"

    found = run_cohort([lambda: task(True), lambda: task(False), lambda: task(True)])
    assert found == ["the device is gone", "well", "the device is gone"]


def test_a_slow_task_costs_no_other_its_time():
    def task(seconds: float) -> str:
        try:
            with time_limit(0.2):
                train_once(models(1)[0], 0)
                time.sleep(seconds)
        except TaskTimeoutError:
            return "late"
        return "in time"

    with interruptible():
        found = run_cohort([lambda: task(5.0), lambda: task(0.0)], 0.2)
    assert found == ["late", "in time"]


def test_a_training_that_takes_too_long_is_stopped(monkeypatch):
    monkeypatch.setattr(cohort, "train_cohort", lambda jobs: time.sleep(10))

    def task() -> str:
        try:
            train_once(models(1)[0], 0)
        except TaskTimeoutError:
            return "late"
        return "in time"

    started = time.monotonic()
    with interruptible():
        assert run_cohort([task, task], 0.1) == ["late", "late"]
    assert time.monotonic() - started < 5


def test_large_models_make_small_cohorts():
    small = models(1)[0]
    assert cohort_size(small) == cohort.MOST
    large = FlatModel(Mclr().build((cohort.FLOATS // 40,), 10))
    assert cohort_size(large) == 3


@pytest.mark.parametrize("work", [lambda: time.sleep(30), lambda: spin(30)])
def test_work_is_interrupted_at_its_limit(work):
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


def test_the_next_task_has_a_limit_of_its_own():
    with interruptible():
        with time_limit(0.05):
            pass
        time.sleep(0.1)
        with pytest.raises(TaskTimeoutError), time_limit(0.05):
            time.sleep(30)


def test_a_time_limit_restores_signal_handlers():
    before = signal.getsignal(signal.SIGALRM)
    with interruptible(), time_limit(10):
        pass
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_a_thread_runs_without_a_limit_of_its_own():
    finished = []

    def work() -> None:
        with interruptible(), time_limit(0.01):
            time.sleep(0.05)
            finished.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert finished == [True]
