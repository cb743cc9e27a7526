"""Local training of many clients at once, for accelerators.

A small network's step keeps a GPU busy for less time than it takes to ask for it. Here
one step is that of a whole cohort: every client has a row of one matrix of weights, and
`torch.func` maps the gradient of the loss over the rows. The batches are those that
each client would have drawn alone; where one is smaller, a mask leaves the rest out of
the mean. So the result is that of `training.train_alone` but for the order of sums.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy
from torch.nn.modules.batchnorm import _BatchNorm

from cfl_flower.learning.training import (
    LocalTraining,
    TrainingJob,
    add_penalties,
    stepper,
    train_alone,
)
from cfl_flower.models import FlatModel
from cfl_flower.types import IntArray

NOTHING = -1
"""In the place of a sample that a smaller batch does not have."""

CohortGradient = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""Of weights (k, p), inputs (k, b, ...), labels (k, b) and which of the samples there
are, (k, b): the gradient of each client's mean cross-entropy, (k, p)."""


def cohort_gradient(module: nn.Module) -> CohortGradient:
    """Return the gradient of many models of one network."""
    # What is frozen is the same in all models, and stays in the module.
    named = [each for each in module.named_parameters() if each[1].requires_grad]
    names = [name for name, _ in named]
    shapes = [each.shape for _, each in named]
    lengths = [each.numel() for _, each in named]

    def loss(weights: Tensor, x: Tensor, y: Tensor, there: Tensor) -> Tensor:
        parts = zip(torch.split(weights, lengths), shapes, strict=True)
        tensors = [part.view(shape) for part, shape in parts]
        logits = functional_call(module, dict(zip(names, tensors, strict=True)), (x,))
        losses = cross_entropy(logits, y, reduction="none")
        return (losses * there).sum() / there.sum()

    mapped: CohortGradient = vmap(grad(loss))
    return mapped


def can_train_together(model: FlatModel, shape: Sequence[int]) -> bool:
    """Return whether a network's gradient can be mapped over models.

    That is, whether torch maps all of its operations, and training neither draws
    (dropout) nor mixes the samples of a batch (BatchNorm), in which a smaller batch is
    filled up. Inputs have ``shape``.
    """
    norms = any(isinstance(each, _BatchNorm) for each in model.module.modules())
    if norms or len(model.vector) > len(model.weights):
        return False
    weights = model.weights.detach().expand(2, -1)
    x = weights.new_zeros(2, 2, *shape)
    y = torch.zeros(2, 2).to(weights).long()
    model.module.train(True)
    try:
        cohort_gradient(model.module)(weights, x, y, torch.ones_like(y))
    except RuntimeError:
        return False
    return True


def train_cohort(jobs: Iterable[TrainingJob]) -> None:
    """Do the jobs of many clients; those together that differ in their data alone."""
    alike: dict[Hashable, list[TrainingJob]] = defaultdict(list)
    for job in jobs:
        alike[_kind(job)].append(job)
    for kind, group in alike.items():
        if kind is None or len(group) == 1:
            for job in group:
                train_alone(job)
        else:
            _train_in_memory(group)


def _kind(job: TrainingJob) -> Hashable:
    """Return what jobs that are done together have in common; None for a lone one."""
    settings = job.settings
    steps = 0
    if job.loss is not None:
        return None
    if settings.momentum or settings.optimizer != "sgd":
        # An optimiser's memory of all rows makes the same number of steps.
        steps = settings.count_steps(len(job.y))
    part = job.part.start, job.part.stop
    own = job.model.alike, job.x.shape[1:], job.correction is None
    return own, repr(settings), part, steps


def _train_in_memory(jobs: list[TrainingJob]) -> None:
    """Train together as many at a time as the device has memory for."""
    before = [job.rng.bit_generator.state for job in jobs]
    try:
        train_together(jobs)
    except torch.OutOfMemoryError:
        if len(jobs) == 1:
            raise
        for job, state in zip(jobs, before, strict=True):
            job.rng.bit_generator.state = state
        half = len(jobs) // 2
        _train_in_memory(jobs[:half])
        _train_in_memory(jobs[half:])


@torch.no_grad()
def train_together(jobs: Sequence[TrainingJob]) -> None:
    """Do k jobs that differ in their data alone, with a plain SGD's numbers of steps.

    The models change only when all is done.
    """
    settings = jobs[0].settings
    part = jobs[0].part
    # Whoever makes more steps comes first, so that each step is of the first rows.
    jobs = sorted(jobs, key=lambda job: -settings.count_steps(len(job.y)))
    rows = cohort_batches(jobs)
    x = torch.cat([job.x for job in jobs])
    y = torch.cat([job.y for job in jobs])
    weights = torch.stack([job.model.weights for job in jobs])
    gradient = torch.zeros_like(weights)
    centres = _stack([job.centre() for job in jobs])
    corrections = _stack([job.correction for job in jobs])
    module = jobs[0].model.module
    module.train(True)
    write_gradient = cohort_gradient(module)
    active = (rows[:, :, 0] != NOTHING).sum(1).tolist()
    at = torch.from_numpy(rows).to(y.device)
    step = stepper(weights[:, part], gradient[:, part], settings)
    count = len(jobs)
    for now, some in zip(at, active, strict=True):
        if some < count:
            count = some
            step = stepper(weights[:count, part], gradient[:count, part], settings)
        there = now[:count] != NOTHING
        taken = now[:count].clamp(min=0)
        gradient[:count] = write_gradient(weights[:count], x[taken], y[taken], there)
        moved = weights[:count, part]
        along = gradient[:count, part]
        centre, correction = (
            each if each is None else each[:count] for each in (centres, corrections)
        )
        add_penalties(along, moved, settings, centre, correction)
        step()
    for job, trained in zip(jobs, weights, strict=True):
        job.model.weights.copy_(trained)


def _stack(rows: Sequence[Tensor | None]) -> Tensor | None:
    """Return the matrix of a vector for each job; None if they have none."""
    found = [row for row in rows if row is not None]
    return torch.stack(found) if found else None


def cohort_batches(jobs: Sequence[TrainingJob]) -> IntArray:
    """Return which samples every step of each job takes, shape (steps, k, b).

    As numbers in all jobs' samples, one after another; `NOTHING` fills up what a batch
    or a job has not.
    """
    each = [batch_rows(len(job.y), job.settings, job.rng) for job in jobs]
    steps, width = (max(rows.shape[axis] for rows in each) for axis in (0, 1))
    together = np.full((steps, len(jobs), width), NOTHING)
    start = 0
    for place, (rows, job) in enumerate(zip(each, jobs, strict=True)):
        there = np.where(rows == NOTHING, NOTHING, rows + start)
        together[: rows.shape[0], place, : rows.shape[1]] = there
        start += len(job.y)
    return together


def batch_rows(
    samples: int, settings: LocalTraining, rng: np.random.Generator
) -> IntArray:
    """Return the samples of each mini-batch, as `training.batches` draws them, (s, b).

    The batch at the end of a pass is filled up with `NOTHING`.
    """
    steps = settings.count_steps(samples)
    size = min(settings.batch_size, samples)
    in_a_pass = settings.count_batches(samples)
    width = -(-samples // size)
    orders = np.full((-(-steps // in_a_pass), width * size), NOTHING)
    for order in orders:
        order[:samples] = rng.permutation(samples)
    # An incomplete batch at the end may be left out.
    passes = orders.reshape(len(orders), width, size)[:, :in_a_pass]
    return passes.reshape(-1, size)[:steps]
