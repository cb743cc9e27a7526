"""Local training of many clients at once: small networks keep no GPU busy one by one.

Every client has a row of one matrix of weights, over which `torch.func` maps the
gradient of the loss. The batches are those that each client would have drawn alone;
where one is smaller, a mask leaves the rest out of the mean. So the result is that of
`training.train_alone` but for the order of sums.
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
from torch.optim import Optimizer

from cfl_flower.learning.gradients import SampleLoss
from cfl_flower.learning.optimizer import add_penalties, make_optimizer
from cfl_flower.learning.training import TrainingJob, batches, train_alone
from cfl_flower.models import FlatModel

PADDING = -1
"""In the place of a sample that a smaller batch does not have."""


class SampleLosses(nn.Module):
    """A network with a loss, as one module: its outputs are the samples' losses."""

    def __init__(self, network: nn.Module, loss: SampleLoss | None) -> None:
        super().__init__()
        self.network = network
        self.loss = loss

    def forward(self, x: Tensor, y: Tensor, *own: Tensor) -> Tensor:
        """Return the loss of each sample, (b,); ``own`` are the loss's tensors."""
        if self.loss is None:
            return cross_entropy(self.network(x), y, reduction="none")
        losses: Tensor = self.loss.of_samples(self.network, x, y, *own)
        return losses


def cohort_gradient(
    network: nn.Module, loss: SampleLoss | None = None
) -> Callable[..., Tensor]:
    """Return the gradients of many models of one network, (k, p), as a function.

    Of weights (k, p), inputs (k, b, ...), labels (k, b), which of the samples there
    are, (k, b), and the loss's tensors, (k, ...) each: the gradient of each client's
    mean loss, which is the cross-entropy if there is no other.
    """
    module = SampleLosses(network, loss)
    # What is frozen is the same in all models, and stays in the module.
    shapes = {n: p.shape for n, p in module.named_parameters() if p.requires_grad}
    lengths = [shape.numel() for shape in shapes.values()]

    def mean_loss(
        weights: Tensor, x: Tensor, y: Tensor, there: Tensor, *own: Tensor
    ) -> Tensor:
        parts = zip(shapes.items(), torch.split(weights, lengths), strict=True)
        tensors = {name: part.view(shape) for (name, shape), part in parts}
        losses: Tensor = functional_call(module, tensors, (x, y, *own))
        return (losses * there).sum() / there.sum()

    mapped: Callable[..., Tensor] = vmap(grad(mean_loss))
    return mapped


def can_train_together(model: FlatModel, shape: Sequence[int]) -> bool:
    """Return whether a network's gradient can be mapped over models.

    That is, whether torch maps all of its operations, and training neither draws
    (dropout) nor mixes the samples of a batch (BatchNorm), in which a smaller batch is
    filled up. Inputs have ``shape``.
    """
    norms = any(isinstance(each, _BatchNorm) for each in model.module.modules())
    if norms or model.own.values or len(model.vector) > len(model.weights):
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
        network = job.model.alike, job.x.shape[1:], job.part.start, job.part.stop
        mapped = mapped_loss(job)
        loss = mapped.alike if mapped else job.loss
        kind = network, loss, job.correction is None, repr(job.settings)
        alike[kind].append(job)
    for group in alike.values():
        _train_in_memory(group)


def mapped_loss(job: TrainingJob) -> SampleLoss | None:
    """Return a job's loss if it can be mapped over clients; the plain one is None."""
    return job.loss if isinstance(job.loss, SampleLoss) else None


def _train_in_memory(jobs: list[TrainingJob]) -> None:
    """Train together as many at a time as the device has memory for."""
    settings = jobs[0].settings
    own_loss = jobs[0].loss is not None and mapped_loss(jobs[0]) is None
    plain = settings.plain_loss and not settings.augment
    if len(jobs) == 1 or own_loss or not plain:
        for job in jobs:
            train_alone(job)
        return
    before = [job.rng.bit_generator.state for job in jobs]
    try:
        train_together(jobs)
    except torch.OutOfMemoryError:
        for job, state in zip(jobs, before, strict=True):
            job.rng.bit_generator.state = state
        half = len(jobs) // 2
        _train_in_memory(jobs[:half])
        _train_in_memory(jobs[half:])


@torch.no_grad()
def train_together(jobs: Sequence[TrainingJob]) -> None:
    """Do k jobs that differ in their data alone.

    The models change only when all is done.
    """
    settings = jobs[0].settings
    part = jobs[0].part
    module = jobs[0].model.module.train()
    # Those that make more steps come first, so that each step is of the first rows.
    jobs = sorted(jobs, key=lambda job: -settings.count_steps(len(job.y)))
    rows = cohort_batches(jobs)
    active = (rows[:, :, 0] != PADDING).sum(1).tolist()
    x = torch.cat([job.x for job in jobs])
    y = torch.cat([job.y for job in jobs])
    weights = torch.stack([job.model.weights for job in jobs])
    gradient = torch.zeros_like(weights)
    centres = _stack([job.centre() for job in jobs])
    corrections = _stack([job.correction for job in jobs])
    gradients_of = cohort_gradient(module, mapped_loss(jobs[0]))
    losses = [loss for job in jobs if (loss := mapped_loss(job))]
    of_each = [loss.tensors for loss in losses]
    own = [torch.stack(tensors) for tensors in zip(*of_each, strict=True)]
    optimizer = make_optimizer(weights[:, part], gradient[:, part], settings)
    count = 0
    for now, some in zip(torch.from_numpy(rows).to(y.device), active, strict=True):
        if some != count:
            count = some
            moved = weights[:count, part]
            along = gradient[:count, part]
            centre = None if centres is None else centres[:count]
            correction = None if corrections is None else corrections[:count]
            keep_first_rows(optimizer, moved, along)
        taken = now[:count].clamp(min=0)
        there = now[:count] != PADDING
        theirs = [tensor[:count] for tensor in own]
        gradient[:count] = gradients_of(
            weights[:count], x[taken], y[taken], there, *theirs
        )
        add_penalties(along, moved, settings, centre, correction)
        optimizer.step()
    for job, trained in zip(jobs, weights, strict=True):
        job.model.weights.copy_(trained)


def keep_first_rows(optimizer: Optimizer, weights: Tensor, gradient: Tensor) -> None:
    """Let an optimiser go on with fewer rows, and with what it remembers of them.

    ``weights`` and ``gradient`` are the first k rows of those that it has, (k, p).
    """
    group = optimizer.param_groups[0]
    before = group["params"][0]
    remembered = optimizer.state.pop(before, {})
    for name, value in remembered.items():
        is_of_rows = torch.is_tensor(value) and value.shape == before.shape
        kept = value[: len(weights)] if is_of_rows else value
        optimizer.state[weights][name] = kept
    weights.grad = gradient
    group["params"] = [weights]


def _stack(rows: Sequence[Tensor | None]) -> Tensor | None:
    """Return the matrix of a vector for each job; None if they have none."""
    found = [row for row in rows if row is not None]
    return torch.stack(found) if found else None


def cohort_batches(jobs: Sequence[TrainingJob]) -> np.ndarray:
    """Return which samples every step of each job takes, shape (steps, k, b).

    As numbers in all jobs' samples, one after another; `PADDING` fills up what a batch
    or a job has not.
    """
    sizes = [len(job.y) for job in jobs]
    settings = jobs[0].settings
    steps = max(map(settings.count_steps, sizes))
    width = min(settings.batch_size, max(sizes))
    together = np.full((steps, len(jobs), width), PADDING)
    for place, (job, end) in enumerate(zip(jobs, np.cumsum(sizes), strict=True)):
        own = torch.arange(end - len(job.y), end)
        for step, (rows, _) in enumerate(batches(own, own, settings, job.rng)):
            together[step, place, : len(rows)] = rows.numpy()
    return together
