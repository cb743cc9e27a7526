"""Layers do in a cohort what each does alone, or the clients train one by one."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from cfl_flower.learning import cohort_layers
from cfl_flower.learning.cohort_training import train_together, why_apart
from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.learning.training import TrainingJob, train_alone
from cfl_flower.models import (
    FlatModel,
    FlexCflFemnistCnn,
    Mclr,
    Mlp,
    Recurrent,
    ResNet18,
)
from cfl_flower.models.own_state import Observed
from tests.cfl_flower.learning.cohorts import (
    CLASSES,
    SHAPE,
    assert_as_alone,
    make_jobs,
    network,
)
from tests.contract import odd_networks

pytestmark = pytest.mark.usefixtures("one_thread")


class Normed(nn.Module):
    """BatchNorm, with and without statistics, and GroupNorm between layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(1, 4, 5, 4), nn.BatchNorm2d(4), nn.ReLU())
        self.second = nn.Sequential(nn.GroupNorm(2, 4), nn.Flatten())
        self.third = nn.BatchNorm1d(144, affine=False, track_running_stats=False)
        self.last = nn.Linear(144, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.last(self.third(self.second(self.first(x))))
        return logits


class Twice(nn.Module):
    """One BatchNorm that is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(1)
        self.last = nn.Linear(784, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.last(self.norm(self.norm(x)).flatten(1))
        return logits


@pytest.mark.parametrize("of", [Normed, Twice])
@pytest.mark.parametrize(
    "options",
    [
        {"epochs": 2, "batch_size": 8},
        {"epochs": 3, "momentum": 0.9, "label_smoothing": 0.1},
        {"steps": 5, "weight_decay": 0.1, "last_batch": "drop", "mu": 0.1},
    ],
)
def test_norms_leave_out_what_fills_a_batch_up(of, options):
    """Running statistics, too, end where they would have; a batch of 1 is left out."""
    torch.manual_seed(0)
    model = FlatModel(of().double())
    assert not why_apart(model, SHAPE)
    local = LocalTraining(**({"learning_rate": 0.05} | options))
    assert_as_alone(make_jobs(model, [23, 40, 11, 2], local))


def train_as_cohort_of_one(job: TrainingJob) -> None:
    train_together([job])


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(784), nn.Dropout(0.5)])
def test_a_layer_may_have_two_names(layer):
    """Whatever it is called, it leaves out what fills a batch up, and draws alike."""
    torch.manual_seed(0)
    body = nn.Sequential(nn.Flatten(), layer, nn.Sequential(nn.Identity(), layer))
    model = FlatModel(nn.Sequential(body, nn.Linear(784, CLASSES)).double())
    assert not why_apart(model, SHAPE)
    jobs = make_jobs(model, [23, 40, 11], LocalTraining(epochs=2))
    draws = isinstance(layer, nn.Dropout)
    train = train_as_cohort_of_one if draws else train_alone
    assert_as_alone(jobs, train_together, train)


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
    assert_as_alone([replace(job, x=job.x.flatten(1)[:, :64]) for job in jobs])


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
    assert_as_alone(jobs, train_together, train_as_cohort_of_one)


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


class Centred(nn.Module):
    """It takes the mean of a batch from each of its samples."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0)


class Shared(nn.Module):
    """Each sample gets its share of the batch."""

    def forward(self, x: Tensor) -> Tensor:
        return x / len(x)


class Attending(nn.Module):
    """Each sample of a batch looks at all others."""

    def forward(self, x: Tensor) -> Tensor:
        return x + (x @ x.T).softmax(1) @ x


class OwnDropout(nn.Dropout):
    """A class of an author's own, whose forward may do anything."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 1


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
    modules += [flat(Centred()), flat(Attending()), flat(OwnDropout())]
    modules += [flat(Shared()), flat(nn.BatchNorm1d(784), Shared())]
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
    assert_as_alone(jobs, train_together)
