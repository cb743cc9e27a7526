"""Jobs of several clients, and where each ends alone."""

import copy
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from cfl_flower.learning.cohort_training import train_cohort
from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.learning.training import WHOLE, TrainingJob, train_alone
from cfl_flower.models import FlatModel, ModelSettings

SHAPE, CLASSES = (1, 28, 28), 10


def network(
    of: ModelSettings,
    shape: tuple[int, ...] = SHAPE,
    dtype: torch.dtype = torch.float32,
) -> FlatModel:
    torch.manual_seed(1)
    return FlatModel(of.build(shape, CLASSES).to(dtype))


def make_jobs(
    model: FlatModel, sizes: list[int], local: LocalTraining, **options: object
) -> list[TrainingJob]:
    """Return a job for each client, who start from different weights."""
    draw, jobs = torch.Generator().manual_seed(2), []
    defaults = {"anchor": None, "loss": None, "part": WHOLE, "correction": None}
    for client, size in enumerate(sizes):
        own = model.clone()
        noise = torch.randn(own.vector.shape, generator=draw).to(own.vector)
        own.vector.add_(0.01 * noise)
        x = torch.rand(size, *SHAPE, generator=draw).to(own.vector)
        y = torch.randint(CLASSES, (size,), generator=draw)
        rng = np.random.default_rng(client)
        jobs.append(TrainingJob(own, x, y, local, rng, **(defaults | options)))
    return jobs


def alone(
    jobs: list[TrainingJob], train: Callable[[TrainingJob], None] = train_alone
) -> list[Tensor]:
    """Return what each job gives by itself, and leave the jobs as they were."""
    copies = [
        replace(job, model=job.model.clone(), rng=copy.deepcopy(job.rng))
        for job in jobs
    ]
    for job in copies:
        train(job)
    return [job.model.vector for job in copies]


def assert_as_alone(
    jobs: list[TrainingJob],
    together: Callable[[list[TrainingJob]], None] = train_cohort,
    train: Callable[[TrainingJob], None] = train_alone,
) -> None:
    """Assert that jobs done together end where each does by itself."""
    expected = alone(jobs, train)
    together(jobs)
    assert_same(jobs, expected)


def assert_same(jobs: list[TrainingJob], expected: list[Tensor]) -> None:
    """Assert that weights differ by rounding alone, of their own precision.

    Adam divides by the size of a gradient: where that is next to 0, rounding decides on
    a part of a step.
    """
    for job, vector in zip(jobs, expected, strict=True):
        double = vector.dtype == torch.float64
        adam = job.settings.optimizer == "adam" and not double
        atol = 0.1 * job.settings.learning_rate if adam else 2e-6
        if double:
            torch.testing.assert_close(job.model.vector, vector, rtol=1e-6, atol=1e-8)
        else:
            torch.testing.assert_close(job.model.vector, vector, rtol=1e-4, atol=atol)
