"""Tasks of many clients that wait for each other wherever they train.

Clients are written one by one, each a plain call that trains in its midst. Here every
task runs until it calls `training.train`; once all have come that far, or are done,
`learning.cohort_training` trains them together, and each goes on. One runs at a time,
in the order of the tasks, so nothing that they share needs a lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import torch
from greenlet import getcurrent, greenlet

from cfl_flower.client.time_limit import time_limit, without_limit
from cfl_flower.learning.cohort_layers import draws
from cfl_flower.learning.cohort_training import train_cohort
from cfl_flower.learning.training import TRAINER, TrainingJob
from cfl_flower.models import FlatModel
from cfl_flower.seeding import own_draws

MOST = 128
"""Clients of a cohort."""

FLOATS = 2**27
"""Weights of a cohort's models: 512 MB, of which training has some ten copies."""

T = TypeVar("T")


def cohort_size(model: FlatModel) -> int:
    """Return how many clients train together."""
    return max(1, min(MOST, FLOATS // len(model.vector)))


def run_cohort(tasks: Sequence[Callable[[], T]], seconds: float = 0.0) -> list[T]:
    """Return what each task returns, with their trainings done together.

    A training of the cohort that fails, or takes longer than ``seconds`` for each of
    its clients (0: for ever), fails in all of the tasks that wait for it.
    """
    cohort = [greenlet(partial(_member, task)) for task in tasks]
    # Of each task what it returned, or the job that it waits for.
    answers = [_go_on(member) for member in cohort]
    while waiting := [i for i, member in enumerate(cohort) if not member.dead]:
        error = None
        try:
            with time_limit(seconds * len(waiting)):
                train_cohort([answers[place] for place in waiting])
        except Exception as failure:  # noqa: BLE001 - raised in the tasks instead
            error = failure
        for place in waiting:
            answers[place] = _go_on(cohort[place], error)
    return answers


def _go_on(member: greenlet, error: Exception | None = None) -> Any:
    # Re-enable gradients: a task may have paused inside `no_grad`.
    with torch.enable_grad():
        return member.throw(error) if error else member.switch()


def _member(task: Callable[[], T]) -> T:
    """Do a task whose trainings are done by its cohort."""
    TRAINER.set(_wait)
    return task()


def _wait(job: TrainingJob) -> None:
    """Hand a job to the cohort, and go on when it is done."""
    hub = getcurrent().parent
    assert hub is not None
    if draws(job.model.module):
        job = replace(job, seed=int(torch.randint(2**31, ())))
    # This client's next draws and its time are its own.
    with without_limit(), own_draws(), torch.random.fork_rng():
        hub.switch(job)
