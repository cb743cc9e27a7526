"""Cohorts of clients on a GPU, against the least that their steps cost there.

The reference is a step of plain SGD on models that lie in one block, captured once as a
CUDA graph and replayed: no client, no settings, no data to bring together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from cfl_flower.learning.cohort_training import train_cohort
from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.learning.training import WHOLE, TrainingJob, train_alone
from cfl_flower.models import FedCcfaCnn, FlatModel, Mclr, Mlp, ModelSettings
from tests.benchmarks import measure as bench

SHAPE = (1, 28, 28)
CLASSES = 10
SAMPLES = 600
RATE = 0.01
LIMIT = 1.3
"""Times the reference that a cohort may take."""


class Work(NamedTuple):
    """What a cohort does."""

    name: str
    network: ModelSettings
    clients: int
    batch: int
    steps: int


WORKS = [
    Work("softmax regression", Mclr(), 128, 10, 60),
    Work("MLP 784-200-10", Mlp(hidden=200), 128, 10, 60),
    Work("FedCCFA's convolutions", FedCcfaCnn(), 128, 10, 60),
    Work("FedCCFA's convolutions", FedCcfaCnn(), 20, 64, 50),
]


def rows() -> Iterator[bench.Row]:
    """Time the steps of each cohort, and compare the models."""
    if not torch.cuda.is_available():
        why = "PyTorch finds no CUDA device here"
        yield bench.Row("cohorts on a GPU", "not measured", "-", True, why)
        return
    for work in WORKS:
        yield from compare(work)


def compare(work: Work) -> Iterator[bench.Row]:
    """Time a cohort and its reference, and train some of its clients one by one."""
    model = FlatModel(work.network.build(SHAPE, CLASSES), "cuda")
    replay = plain_steps(work, model)
    jobs = make_jobs(work, model, work.clients)
    whole = partial(train_cohort, jobs)
    # The first two calls take steps one by one, and capture one.
    for step in (whole, whole, replay):
        step()
    least, ours = bench.measure(finished(replay), finished(whole), count=5)
    what = f"{work.clients} clients, {work.steps} x {work.batch}, {work.name}"
    yield bench.compare(f"a cohort / a replayed step: {what}", ours, least, LIMIT)
    some = make_jobs(work, model, 4)
    others = make_jobs(work, model, 4)
    (apart,) = bench.measure(finished(partial(one_by_one, others)), count=1)
    factor = apart[0] * work.clients / len(others) / ours[0]
    yield bench.Row(f"one by one / a cohort: {what}", f"{factor:.1f} x", "-", True)
    train_cohort(some)
    gaps = [
        float((own.model.vector - other.model.vector).abs().max())
        for own, other in zip(some, others, strict=True)
    ]
    # Convolutions may round their inputs to TF32, which is an error of 1e-3 a step.
    yield bench.within(f"largest difference of a weight: {what}", max(gaps), 1e-2, "")


def make_jobs(work: Work, model: FlatModel, clients: int) -> list[TrainingJob]:
    """Return a job of each client, on random samples of its own."""
    draw = torch.Generator().manual_seed(0)
    local = LocalTraining(steps=work.steps, batch_size=work.batch, learning_rate=RATE)
    jobs = []
    for client in range(clients):
        x = torch.rand(SAMPLES, *SHAPE, generator=draw).to(model.vector.device)
        y = torch.randint(CLASSES, (SAMPLES,), generator=draw).to(x.device)
        rng = np.random.default_rng(client)
        own = model.clone()
        jobs.append(TrainingJob(own, x, y, local, rng, None, None, WHOLE, None))
    return jobs


@torch.no_grad()
def plain_steps(work: Work, model: FlatModel) -> Callable[[], None]:
    """Return a function that replays the steps of all clients."""
    count = work.clients
    module = model.clone().module
    weights = {
        name: each.detach().expand(count, *each.shape).clone()
        for name, each in module.named_parameters()
    }
    x = torch.rand(count, SAMPLES, *SHAPE, device="cuda")
    y = torch.randint(CLASSES, (count, SAMPLES), device="cuda")
    batches = torch.randint(SAMPLES, (work.steps, count, work.batch), device="cuda")
    here = torch.arange(count, device="cuda")[:, None]
    rows = batches[0].clone()

    def loss(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(functional_call(module, weights, (x,)), y)

    def step() -> None:
        found = vmap(grad(loss))(weights, x[here, rows], y[here, rows])
        for name, each in weights.items():
            each.sub_(found[name], alpha=RATE)

    for _ in range(2):
        step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    def replay(*_kept: object) -> None:
        for batch in batches:
            rows.copy_(batch)
            graph.replay()

    # A graph reads memory that nothing else would keep.
    return partial(replay, weights, x, y, here)


def one_by_one(jobs: Sequence[TrainingJob]) -> None:
    """Train each client by itself."""
    for job in jobs:
        train_alone(job)


def finished(step: Callable[[], object]) -> Callable[[], None]:
    """Return a function that works until the device is done with it."""

    def work() -> None:
        step()
        torch.cuda.synchronize()

    return work
