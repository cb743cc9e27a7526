"""Clients that train at once end where each would have alone."""

import copy
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from cfl_flower.learning import cohort_layers, cohort_training
from cfl_flower.learning.by_name import OPTIMIZERS
from cfl_flower.learning.cohort_step import PADDING
from cfl_flower.learning.cohort_training import (
    cohort_batches,
    train_cohort,
    train_together,
    why_apart,
)
from cfl_flower.learning.decoupling import AlignedLoss, Anchors, contrast, distance
from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.learning.training import WHOLE, TrainingJob, batches, train_alone
from cfl_flower.models import (
    FedCcfaCnn,
    FlatModel,
    FlexCflFemnistCnn,
    Mclr,
    Mlp,
    ModelSettings,
    Recurrent,
    ResNet18,
)
from cfl_flower.models.own_state import Observed
from tests.contract import odd_networks

SHAPE, CLASSES = (1, 28, 28), 10


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Train as workers do: threads cost these small convolutions most of their time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


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


def alone(jobs: list[TrainingJob]) -> list[Tensor]:
    """Return what each job gives by itself, and leave the jobs as they were."""
    copies = [
        replace(job, model=job.model.clone(), rng=copy.deepcopy(job.rng))
        for job in jobs
    ]
    for job in copies:
        train_alone(job)
    return [job.model.vector for job in copies]


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
    expected = alone(jobs)
    train_cohort(jobs)
    assert_same(jobs, expected)
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
    expected = alone(jobs)
    monkeypatch.setattr(cohort_training, "train_alone", None)
    train_cohort(jobs)
    assert_same(jobs, expected)


def test_what_is_frozen_stays_in_a_cohort_as_well():
    module = Mlp(hidden=16).build(SHAPE, CLASSES)
    module.extractor[1].bias.requires_grad_(False).fill_(0.5)
    model = FlatModel(module)
    jobs = make_jobs(model, [23, 40], LocalTraining(epochs=1, weight_decay=0.1, mu=0.5))
    expected = alone(jobs)
    train_together(jobs)
    assert_same(jobs, expected)
    for job in jobs:
        assert job.model.module.extractor[1].bias.tolist() == [0.5] * 16


class Normed(nn.Module):
    """BatchNorm, with and without statistics, and GroupNorm between layers."""

    def __init__(self, last: nn.Module) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(1, 4, 5, 4), nn.BatchNorm2d(4), nn.ReLU())
        self.second = nn.Sequential(nn.GroupNorm(2, 4), nn.Flatten())
        self.third = nn.BatchNorm1d(144, affine=False, track_running_stats=False)
        self.last = last

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.last(self.third(self.second(self.first(x))))
        return logits


@pytest.mark.parametrize(
    "options",
    [
        {"epochs": 2, "batch_size": 8},
        {"epochs": 3, "momentum": 0.9, "label_smoothing": 0.1},
        {"steps": 5, "weight_decay": 0.1, "last_batch": "drop", "mu": 0.1},
    ],
)
def test_norms_leave_out_what_fills_a_batch_up(options):
    """Running statistics, too, end where they would have; a batch of 1 is left out."""
    torch.manual_seed(0)
    model = FlatModel(Normed(nn.Linear(144, CLASSES)).double())
    assert not why_apart(model, SHAPE)
    local = LocalTraining(**({"learning_rate": 0.05} | options))
    jobs = make_jobs(model, [23, 40, 11, 2], local)
    expected = alone(jobs)
    train_cohort(jobs)
    assert_same(jobs, expected)


class Twice(nn.Module):
    """One BatchNorm that is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(1)
        self.last = nn.Linear(784, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.last(self.norm(self.norm(x)).flatten(1))
        return logits


def test_a_norm_may_be_called_twice():
    torch.manual_seed(0)
    model = FlatModel(Twice().double())
    assert not why_apart(model, SHAPE)
    jobs = make_jobs(model, [23, 40, 11], LocalTraining(epochs=2))
    expected = alone(jobs)
    train_cohort(jobs)
    assert_same(jobs, expected)


def test_layers_that_an_author_keeps_in_evaluation_stay_there():
    module = odd_networks.KeptInEvaluation().double().train()
    frozen = Observed(frozenset())
    model = FlatModel(module, observed=frozen)
    # Its norm's buffers do not move, and are put back before each task.
    assert why_apart(model, (64,))
    module.norm = nn.Identity()
    model = FlatModel(module, observed=frozen)
    assert not why_apart(model, (64,))
    jobs = make_jobs(model, [23, 40, 11], LocalTraining(epochs=2))
    jobs = [replace(job, x=job.x.flatten(1)[:, :64]) for job in jobs]
    expected = alone(jobs)
    train_cohort(jobs)
    assert_same(jobs, expected)


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


@pytest.mark.parametrize(
    "layer", [nn.Dropout(0.5), nn.Dropout2d(0.25), nn.Dropout(1.0)]
)
def test_clients_draw_the_same_in_every_cohort(layer):
    """And each something else, in each step; a share of what passes the layer."""
    body = nn.Sequential(nn.Conv2d(1, 8, 9, 9), layer, nn.Flatten())
    module = nn.Sequential(body, nn.Linear(72, CLASSES)).double()
    model = FlatModel(module)
    assert not why_apart(model, SHAPE)
    local = LocalTraining(epochs=2, momentum=0.5)
    jobs = make_jobs(model, [23, 40, 11], local)
    jobs = [replace(job, seed=7 * place) for place, job in enumerate(jobs)]
    copies = [
        replace(job, model=job.model.clone(), rng=copy.deepcopy(job.rng))
        for job in jobs
    ]
    for job in copies:
        train_together([job])
    train_together(jobs)
    assert_same(jobs, [job.model.vector for job in copies])


@pytest.mark.parametrize("number", [2, 7, 14])
def test_dropout_drops_its_share_and_never_twice_the_same(number):
    layer = cohort_layers.Dropout(nn.Dropout(0.3), 1)
    other = cohort_layers.Dropout(nn.Dropout(0.3), number)
    x = torch.ones(100, 200)
    found = []
    for seed in range(5):
        layer.drawn = other.drawn = cohort_layers.scramble(torch.tensor(seed))
        found += [layer(x), layer(x), other(x)]
    for drawn in found:
        assert drawn.unique().tolist() == pytest.approx([0, 1 / 0.7])
        assert drawn.mean() == pytest.approx(1, abs=0.02)
        for mean in (drawn.mean(0), drawn.mean(1)):
            assert mean.std() < 0.1
    kept = torch.stack([(drawn > 0).double().flatten() for drawn in found])
    # One layer's draws may not be another's, moved by a place, either.
    kept = torch.cat([kept, kept[:3].roll(1, 1)])
    apart = torch.corrcoef(kept) - torch.eye(len(kept))
    assert apart.abs().max() < 0.04


class Averaging(nn.Module):
    """It keeps a statistic of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(784))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean.lerp_(x.detach().mean(0), 0.1)
        return x - self.mean


class FeatureNoise(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, 0.5, self.training)


def test_networks_that_torch_cannot_map_train_one_by_one():
    def flat(*layers: nn.Module) -> nn.Module:
        return nn.Sequential(nn.Flatten(), *layers, nn.Linear(784, CLASSES))

    cumulative = nn.BatchNorm1d(784, momentum=None)
    tracked = nn.InstanceNorm1d(784, track_running_stats=True)
    modules = [flat(FeatureNoise()), flat(cumulative), flat(nn.AlphaDropout())]
    modules += [flat(tracked), flat(Averaging())]
    for module in modules:
        assert why_apart(FlatModel(module), SHAPE)
    shapes = {FlexCflFemnistCnn(): SHAPE, ResNet18(): (3, 32, 32)}
    shapes |= dict.fromkeys((Mclr(), Mlp()), SHAPE)
    for of, shape in shapes.items():
        assert not why_apart(network(of, shape), shape)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_recurrent_clients_train_together(cell):
    shape = (5, 8)
    model = network(Recurrent(cell=cell), shape, torch.float64)
    model.module.extractor.dense[2].p = 0.0
    assert not why_apart(model, shape)
    jobs = make_jobs(model, [20, 9], LocalTraining(epochs=1))
    jobs = [replace(job, x=job.x.flatten(1)[:, :40].view(-1, *shape)) for job in jobs]
    expected = alone(jobs)
    train_together(jobs)
    assert_same(jobs, expected)


@pytest.mark.parametrize(
    "options", [{"epochs": 3}, {"steps": 7}, {"last_batch": "drop"}]
)
def test_a_cohort_draws_the_batches_that_each_would(options):
    local = LocalTraining(**options, batch_size=7)
    jobs = make_jobs(network(Mclr()), [23, 40, 1, 7], local)
    others = [copy.deepcopy(job.rng) for job in jobs]
    rows = cohort_batches(jobs)
    start = 0
    for place, (job, rng) in enumerate(zip(jobs, others, strict=True)):
        own = torch.arange(start, start + len(job.y))
        drawn = [some.tolist() for some, _ in batches(own, own, local, rng)]
        found = [row[row != PADDING].tolist() for row in rows[place]]
        assert found == drawn + [[]] * (rows.shape[1] - len(drawn))
        assert rng.random() == job.rng.random()
        start += len(job.y)


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
    expected = alone(jobs)
    train_cohort(jobs)
    assert_same(jobs, expected)
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
    expected = alone(jobs)
    monkeypatch.setattr(cohort_training, "train_alone", None)
    train_cohort(jobs)
    assert_same(jobs, expected)


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
    expected = alone(jobs)
    train_cohort(jobs)
    assert_same(jobs, expected)
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
    expected = alone(jobs)
    train_cohort(jobs)
    assert sizes == [5, 2, 3, 2]
    assert_same(jobs, expected)
