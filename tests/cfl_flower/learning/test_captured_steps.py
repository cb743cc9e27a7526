"""Steps that a GPU repeats by itself are those that Python takes one by one."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from cfl_flower.learning.by_name import OPTIMIZERS
from cfl_flower.learning.cohort_training import COHORTS, train_cohort, why_apart
from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.learning.training import WHOLE, TrainingJob, train_alone
from cfl_flower.models import FedCcfaCnn, FlatModel, Mclr, Mlp, Recurrent

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available(), reason="PyTorch finds no CUDA device here"
    ),
]

SHAPE = (1, 28, 28)
CLASSES = 10


@pytest.fixture(autouse=True)
def _no_memory() -> None:
    COHORTS.clear()


def make_jobs(
    model: FlatModel, sizes: list[int], local: LocalTraining, seed: int
) -> list[TrainingJob]:
    draw = torch.Generator().manual_seed(seed)
    jobs = []
    for client, size in enumerate(sizes):
        own = model.clone()
        noise = torch.randn(own.vector.shape, generator=draw, dtype=torch.float64)
        own.vector.add_(0.01 * noise.to(own.vector))
        x = torch.rand(size, *SHAPE, generator=draw).to(own.vector)
        y = torch.randint(CLASSES, (size,), generator=draw).to(x.device)
        rng = np.random.default_rng([seed, client])
        jobs.append(TrainingJob(own, x, y, local, rng, None, None, WHOLE, None, client))
    return jobs


def assert_as_alone(
    module: nn.Module, local: LocalTraining, rounds: list[list[int]], atol: float = 1e-7
) -> None:
    """Train cohorts on the GPU, round by round, and each client alone on the CPU."""
    on_cpu = FlatModel(module.double())
    on_gpu = on_cpu.clone()
    on_gpu = FlatModel(on_gpu.module, "cuda")
    for seed, sizes in enumerate(rounds):
        theirs = make_jobs(on_cpu, sizes, local, seed)
        ours = make_jobs(on_gpu, sizes, local, seed)
        for job in theirs:
            with torch.no_grad():
                train_alone(job)
        train_cohort(ours)
        for job, other in zip(ours, theirs, strict=True):
            found = job.model.vector.cpu()
            wanted = other.model.vector
            torch.testing.assert_close(found, wanted, rtol=1e-6, atol=atol)


ROUNDS = [[40, 23, 10, 1], [12, 40, 40, 33], [40, 40, 40, 40]]


@pytest.mark.parametrize("name", [name.lower() for name in OPTIMIZERS])
def test_every_optimiser_begins_anew_in_each_round(name):
    momentum = 0.9 if name == "sgd" else 0.0
    local = LocalTraining(
        epochs=3, optimizer=name, momentum=momentum, learning_rate=0.01
    )
    torch.manual_seed(0)
    # On a GPU what counts Adam's steps has single precision.
    atol = 1e-7 if name == "sgd" else 1e-4
    assert_as_alone(Mclr().build(SHAPE, CLASSES), local, ROUNDS, atol)


@pytest.mark.parametrize("of", [Mlp(hidden=16), FedCcfaCnn()])
@pytest.mark.parametrize(
    "options", [{}, {"momentum": 0.5}, {"mu": 0.1, "weight_decay": 0.1, "clip": 0.1}]
)
def test_networks_and_penalties(of, options):
    local = LocalTraining(epochs=2, learning_rate=0.05, **options)
    torch.manual_seed(0)
    assert_as_alone(of.build(SHAPE, CLASSES), local, ROUNDS)


def test_norms_train_together_and_recurrent_cells_one_by_one():
    torch.manual_seed(0)
    conv = nn.Conv2d(1, 4, 5, 4)
    layers = conv, nn.BatchNorm2d(4), nn.ReLU(), nn.GroupNorm(2, 4), nn.Flatten()
    normed = nn.Sequential(*layers, nn.Linear(144, CLASSES))
    local = LocalTraining(epochs=2, learning_rate=0.05)
    assert_as_alone(normed, local, ROUNDS)
    recurrent = Recurrent().build((5, 8), CLASSES)
    recurrent.extractor.dense[2].p = 0.0
    # cuDNN's cells are nothing that torch maps over clients.
    assert why_apart(FlatModel(recurrent, "cuda"), (5, 8))


def test_a_rate_that_changes_needs_no_new_graph():
    torch.manual_seed(0)
    model = FlatModel(Mclr().build(SHAPE, CLASSES).double(), "cuda")
    for rate in (0.1, 0.02):
        local = LocalTraining(steps=8, learning_rate=rate)
        jobs = make_jobs(model, [20, 30], local, 1)
        others = make_jobs(model, [20, 30], local, 1)
        train_cohort(jobs)
        for job, other in zip(jobs, others, strict=True):
            train_alone(other)
            torch.testing.assert_close(job.model.vector, other.model.vector)
    assert len(COHORTS) == 1
    (cohort,) = COHORTS.values()
    assert cohort._graphs


class Asking(nn.Module):
    """A network that asks the GPU for a number, which no graph can."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(784, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        scale = torch.ones(3).to(x.device).cpu().sum().to(x)
        logits: Tensor = self.last(x.flatten(1)) * scale
        return logits


def test_what_cannot_be_captured_is_called_instead(caplog):
    torch.manual_seed(0)
    assert_as_alone(Asking(), LocalTraining(epochs=2, learning_rate=0.05), ROUNDS)
    assert caplog.text.count("one by one") <= 1
    (cohort,) = COHORTS.values()
    assert not cohort._graphs
    assert_as_alone(Mclr().build(SHAPE, CLASSES), LocalTraining(epochs=2), ROUNDS)
