"""Local training of many clients at once: small networks keep no GPU busy one by one.

Every client has a row of one matrix of weights, over which `torch.func` maps the
gradient of the loss. The batches are those that each client would have drawn alone;
where one is smaller, a mask leaves the rest out of the mean. So the result is that of
`training.train_alone` but for the order of sums, and for what layers draw.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from math import prod

import numpy as np
import torch

from cfl_flower.learning.cohort_step import (
    PADDING,
    Cohort,
    CohortGradient,
    mapped_loss,
)
from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.learning.training import TrainingJob, least_batch, train_alone
from cfl_flower.models import FlatModel
from cfl_flower.models.outside import has_hooks
from cfl_flower.types import IntArray

KEPT = 4
"""Cohorts whose memory and graphs are kept for later rounds."""

COHORTS: OrderedDict[Hashable, Cohort] = OrderedDict()
"""Those of this process on a GPU, by what makes two of them alike; the last one used
comes last."""


def why_apart(model: FlatModel, shape: Sequence[int]) -> str:
    """Return why a network's gradient cannot be mapped over models; empty if it can.

    It can if torch maps all of its operations, all that training draws or keeps is
    dropout's and BatchNorm's, and only BatchNorm sees how many samples there are, or
    more than one. Inputs have ``shape``.
    """
    if model.remembers or has_hooks(model.module):
        return "the network keeps more than BatchNorm's statistics, or has hooks"
    vectors = model.vector.detach().expand(2, -1).clone()
    # What has a share is of class 1, and what fills the batch up is of class 0.
    shares = torch.tensor([[1, 0], [1, 0]]).to(vectors.device)
    x = torch.linspace(-0.1, 0.1, 4 * prod(shape)).view(2, 2, *shape).to(vectors)
    try:
        gradients = CohortGradient(model, None, LocalTraining())
        filled = gradients.of(vectors, shares, x, shares, shares[:, 0])
        one = shares[:, :1]
        alone = gradients.of(vectors, one, x[:, :1], one, one[:, 0])
        pairs = zip(alone, filled, strict=True)
        # A GPU's convolutions round to ten bits.
        seen = any((a - b).abs().max() > 0.01 * a.abs().max() for a, b in pairs)
    except (RuntimeError, ValueError, LookupError) as error:
        return str(error).partition("\n")[0]
    return "its layers see what fills a batch up" if seen else ""


def train_cohort(jobs: Iterable[TrainingJob]) -> None:
    """Do the jobs of many clients; those together that differ in their data alone."""
    texts: dict[int, str] = {}
    alike: dict[Hashable, list[TrainingJob]] = defaultdict(list)
    for job in jobs:
        settings = job.settings
        if id(settings) not in texts:
            # A plain step's rate is a tensor, and may be another one in each round.
            rate = {"learning_rate": None} if settings.plain_sgd else {}
            texts[id(settings)] = repr(vars(settings) | rate)
        mapped = mapped_loss(job)
        loss = mapped.alike if mapped else job.loss
        network = job.model.alike, job.x.shape[1:], job.part.start, job.part.stop
        alike[*network, loss, job.correction is None, texts[id(settings)]].append(job)
    for kind, group in alike.items():
        _train_in_memory(kind, group)


def _train_in_memory(kind: Hashable, jobs: list[TrainingJob]) -> None:
    """Train together as many at a time as the device has memory for."""
    own_loss = jobs[0].loss is not None and mapped_loss(jobs[0]) is None
    alone = len(jobs) == 1 and not jobs[0].x.is_cuda
    if alone or own_loss or jobs[0].settings.augment:
        for job in jobs:
            train_alone(job)
        return
    before = [job.rng.bit_generator.state for job in jobs]
    try:
        train_together(jobs, kind)
    except torch.OutOfMemoryError:
        COHORTS.clear()
        if len(jobs) == 1:
            raise
        for job, state in zip(jobs, before, strict=True):
            job.rng.bit_generator.state = state
        half = len(jobs) // 2
        _train_in_memory(kind, jobs[:half])
        _train_in_memory(kind, jobs[half:])


@torch.no_grad()
def train_together(jobs: Sequence[TrainingJob], kind: Hashable = None) -> None:
    """Do k jobs that differ in their data alone.

    The models change only when all is done. Jobs of one ``kind`` can have the memory of
    an earlier cohort.
    """
    least = least_batch(jobs[0].model, jobs[0].x)
    count = jobs[0].settings.count_steps
    # Those that make more steps come first, so that each step is of the first rows.
    order = np.argsort([-count(len(job.y), least) for job in jobs], kind="stable")
    jobs = [jobs[place] for place in order]
    rows = cohort_batches(jobs, least)
    samples = sum(len(job.y) for job in jobs)
    clients, steps, width = rows.shape
    key = kind, clients, jobs[0].x.device
    cohort = COHORTS.pop(key, None)
    if cohort is None or not cohort.has_room(samples, steps, width):
        cohort = Cohort(
            jobs[0], clients, rounded_up(samples), rounded_up(steps), rounded_up(width)
        )
    cohort.train(jobs, rows)
    if jobs[0].x.is_cuda:
        COHORTS[key] = cohort
        while len(COHORTS) > KEPT:
            COHORTS.popitem(last=False)


def rounded_up(count: int) -> int:
    """Return a number that is at most a quarter larger, so that few need more room.

    Examples
    --------
    >>> [rounded_up(count) for count in (1, 7, 9, 10, 1000)]
    [1, 7, 10, 10, 1024]
    """
    step = 1 << max(0, count.bit_length() - 3)
    return -(-count // step) * step


def cohort_batches(jobs: Sequence[TrainingJob], least: int = 1) -> IntArray:
    """Return which samples each job takes in every step, shape (k, steps, b).

    As numbers in all jobs' samples, one after another; `PADDING` fills up what a batch
    or a job has not. Jobs draw what `training.batches` would.
    """
    settings = jobs[0].settings
    sizes = [len(job.y) for job in jobs]
    in_a_pass = {size: settings.count_batches(size, least) for size in {*sizes}}
    steps = {size: settings.count_steps(size, least) for size in {*sizes}}
    width = min(settings.batch_size, max(sizes))
    most = max(steps.values())
    together = np.full((len(jobs), most * width), PADDING)
    start = 0
    for row, size, job in zip(together, sizes, jobs, strict=True):
        a_pass = in_a_pass[size] * width
        for begin in range(0, steps[size] * width, a_pass):
            some = row[begin : min(begin + a_pass, steps[size] * width)][:size]
            np.add(job.rng.permutation(size)[: len(some)], start, out=some)
        start += size
    return together.reshape(len(jobs), most, width)
