"""Cohorts of clients on a GPU, against its training them one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import torch

from cfl_flower.client.cohort import cohort_size
from cfl_flower.learning.cohort_training import train_cohort
from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.learning.training import WHOLE, TrainingJob, train_alone
from cfl_flower.models import FedCcfaCnn, FlatModel, Mclr, Mlp, ModelSettings
from tests.benchmarks import measure as bench

Work = Callable[[Sequence[TrainingJob]], None]

SHAPE = (1, 28, 28)
CLASSES = 10
SAMPLES = 600

LOCAL = LocalTraining(steps=60, batch_size=10, learning_rate=0.01)

NETWORKS: dict[str, tuple[ModelSettings, float]] = {
    "softmax regression, 7,850 parameters": (Mclr(), 0.5),
    "MLP 784-200-10": (Mlp(hidden=200), 0.3),
    "FedCCFA's convolutions": (FedCcfaCnn(), 0.1),
}
"""Networks, and the share of the time one by one that a cohort may take. An H200 took
0.35, 0.21 and 0.03."""


def rows() -> Iterator[bench.Row]:
    """Time 60 steps of each client of a cohort, and compare the models."""
    if not torch.cuda.is_available():
        why = "PyTorch finds no CUDA device here"
        yield bench.Row("cohorts on a GPU", "not measured", "-", True, why)
        return
    for name, (network, limit) in NETWORKS.items():
        yield from compare(name, network, limit, "cuda")


def compare(
    name: str, network: ModelSettings, limit: float, device: str
) -> Iterator[bench.Row]:
    """Train one cohort in both ways."""
    model = FlatModel(network.build(SHAPE, CLASSES), device)
    clients = cohort_size(model)
    alone = make_jobs(model, clients)
    together = make_jobs(model, clients)
    for warm in (alone[:2], together[:2]):
        train_cohort(warm)
    one_by_one, at_once = bench.measure(
        partial(_finish, device, _each_alone, alone),
        partial(_finish, device, train_cohort, together),
    )
    what = f"{clients} clients at once / one by one, {name}"
    yield bench.compare(what, at_once, one_by_one, limit)
    gaps = [
        float((own.model.vector - other.model.vector).abs().max())
        for own, other in zip(alone, together, strict=True)
    ]
    # Convolutions may round their inputs to TF32, which is an error of 1e-3 a step.
    yield bench.within(f"largest difference of a weight, {name}", max(gaps), 1e-2, "")


def make_jobs(model: FlatModel, clients: int) -> list[TrainingJob]:
    """Return a job of each client, on random samples of its own."""
    draw = torch.Generator().manual_seed(0)
    jobs = []
    for client in range(clients):
        x = torch.rand(SAMPLES, *SHAPE, generator=draw).to(model.vector.device)
        y = torch.randint(CLASSES, (SAMPLES,), generator=draw).to(x.device)
        rng = np.random.default_rng(client)
        own = model.clone()
        jobs.append(TrainingJob(own, x, y, LOCAL, rng, None, None, WHOLE, None))
    return jobs


def _each_alone(jobs: Sequence[TrainingJob]) -> None:
    for job in jobs:
        train_alone(job)


def _finish(device: str, work: Work, jobs: Sequence[TrainingJob]) -> None:
    """Work until the device is done with it."""
    work(jobs)
    if device == "cuda":
        torch.cuda.synchronize()
