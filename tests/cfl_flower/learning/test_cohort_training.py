"""Clients that train at once end where each would have alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from cfl_flower.learning import cohort_training
from cfl_flower.learning.anchors import AlignedLoss, Anchors, contrast, distance
from cfl_flower.learning.by_name import OPTIMIZERS
from cfl_flower.learning.cohort_training import cohort_batches, train_together
from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.learning.training import TrainingJob
from cfl_flower.models import FedCcfaCnn, FlatModel, Mclr, Mlp
from tests.cfl_flower.learning.cohorts import (
    CLASSES,
    SHAPE,
    alone,
    assert_as_alone,
    make_jobs,
    network,
)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(
    "options",
    [
        {"epochs": 2},
        {"steps": 7},
        {"epochs": 1, "weight_decay": 0.1, "mu": 0.5},
        {"steps": 5, "momentum": 0.9},
        {"epochs": 2, "momentum": 0.5},
        {"steps": 5, "optimizer": "adam", "learning_rate": 0.01},
        {"epochs": 1, "batch_size": 1000},
        {"epochs": 2, "last_batch": "drop", "clip": 0.1},
        {"steps": 5, "optimizer": "adamw", "weight_decay": 0.1, "clip": 0.1},
    ],
)
@pytest.mark.parametrize("of", [Mclr(), Mlp(hidden=16), FedCcfaCnn()])
def test_a_cohort_ends_where_its_clients_would_have(of, options):
    local = LocalTraining(**({"learning_rate": 0.05} | options))
    # In double precision: in single, rounding moves a pooling's maximum on some CPUs.
    jobs = make_jobs(network(of, dtype=torch.float64), [23, 40, 10, 1], local)
    starts = [job.model.vector.clone() for job in jobs]
    assert_as_alone(jobs)
    for job, start in zip(jobs, starts, strict=True):
        assert not torch.equal(job.model.vector, start)


@pytest.mark.parametrize("name", [name.lower() for name in OPTIMIZERS])
def test_clients_who_have_fewer_steps_train_with_the_others(name, monkeypatch):
    """An optimiser keeps what it remembers of those who go on."""
    momentum = 0.9 if name == "sgd" else 0.0
    local = LocalTraining(
        epochs=2, optimizer=name, momentum=momentum, learning_rate=0.01
    )
    jobs = make_jobs(network(Mclr(), dtype=torch.float64), [23, 40, 10, 1], local)
    monkeypatch.setattr(cohort_training, "train_alone", None)
    assert_as_alone(jobs)


def test_what_is_frozen_stays_in_a_cohort_as_well():
    module = Mlp(hidden=16).build(SHAPE, CLASSES)
    module.extractor[1].bias.requires_grad_(False).fill_(0.5)
    model = FlatModel(module)
    jobs = make_jobs(model, [23, 40], LocalTraining(epochs=1, weight_decay=0.1, mu=0.5))
    assert_as_alone(jobs, train_together)
    for job in jobs:
        assert job.model.module.extractor[1].bias.tolist() == [0.5] * 16


def test_precision_is_the_settings():
    model = network(Mlp(hidden=16))
    low = LocalTraining(steps=3, precision="bf16")
    jobs = make_jobs(model, [23, 40], low)
    starts = [job.model.vector.clone() for job in jobs]
    expected = alone(jobs)
    in_full = alone([replace(job, settings=LocalTraining(steps=3)) for job in jobs])
    train_together(jobs)
    for job, start, ours, other in zip(jobs, starts, expected, in_full, strict=True):
        moved = (ours - start).norm()
        assert (job.model.vector - ours).norm() < 0.01 * moved
        assert not torch.equal(job.model.vector, other)


def test_parts_anchors_and_corrections_are_each_clients_own():
    model = network(Mlp(hidden=8))
    part, count = slice(0, 6280), 6280
    local = LocalTraining(steps=4, mu=1.0, learning_rate=0.1)
    jobs = make_jobs(model, [20, 30, 11], local, part=part)
    jobs = [
        replace(
            job,
            anchor=torch.full_like(job.model.weights, place / 10),
            correction=torch.full((count,), place / 100),
        )
        for place, job in enumerate(jobs)
    ]
    before = [job.model.vector[count:].clone() for job in jobs]
    assert_as_alone(jobs)
    for job, rest in zip(jobs, before, strict=True):
        assert torch.equal(job.model.vector[count:], rest)


@pytest.mark.parametrize("kind", ["contrast", "distance"])
def test_clients_with_anchors_of_their_own_train_together(kind, monkeypatch):
    """As with FedCCFA's and FedPAC's losses one by one; some classes have no anchor."""
    model = network(Mlp(hidden=8), dtype=torch.float64)
    jobs = make_jobs(model, [20, 30, 11], LocalTraining(epochs=2, momentum=0.9))
    losses = []
    for place in range(len(jobs)):
        rng = np.random.default_rng(place)
        present = rng.random(CLASSES) < 0.5
        anchors = Anchors(rng.normal(size=(CLASSES, 8)), present)
        cpu = torch.device("cpu")
        aligned = contrast(anchors, 0.5, cpu)
        if kind == "distance":
            aligned = distance(anchors, cpu)
        losses.append(AlignedLoss(aligned, 0.5 + place))
    jobs = [replace(job, loss=loss) for job, loss in zip(jobs, losses, strict=True)]
    monkeypatch.setattr(cohort_training, "train_alone", None)
    assert_as_alone(jobs)


def test_jobs_of_another_kind_are_done_as_well(monkeypatch):
    """Two networks, two settings, one loss of its own: three groups and two alone."""
    first, second = network(Mclr()), network(Mlp(hidden=4))
    slow, fast = LocalTraining(steps=2), LocalTraining(steps=3)

    def loss(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return module(x).square().mean()

    jobs = [
        *make_jobs(first, [10, 12], slow),
        *make_jobs(first, [10, 12], fast),
        *make_jobs(second, [10, 12], slow),
        *make_jobs(first, [10], slow, loss=loss),
        *make_jobs(second, [9], fast),
    ]
    sizes: list[int] = []
    plain = train_together
    monkeypatch.setattr(
        cohort_training,
        "train_together",
        lambda j, kind: (sizes.append(len(j)), plain(j)),
    )
    assert_as_alone(jobs)
    assert sizes == [2, 2, 2]


def test_a_cohort_too_large_for_the_memory_is_halved(monkeypatch):
    plain, sizes = train_together, []

    def limited(jobs: list[TrainingJob], kind: object) -> None:
        sizes.append(len(jobs))
        if len(jobs) > 2:
            cohort_batches(jobs)  # as training does, it draws before it fails
            raise torch.OutOfMemoryError("CUDA out of memory")
        plain(jobs)

    monkeypatch.setattr(cohort_training, "train_together", limited)
    jobs = make_jobs(network(Mclr()), [8, 9, 10, 11, 12], LocalTraining(steps=3))
    assert_as_alone(jobs)
    assert sizes == [5, 2, 3, 2]
