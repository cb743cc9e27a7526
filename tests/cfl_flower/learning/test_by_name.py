"""Local training by the names of torch: a step is torch's, and nothing else moves."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from cfl_flower.learning.by_name import OPTIMIZERS, augmented
from cfl_flower.learning.gradients import gradient_writer
from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.learning.training import train
from cfl_flower.models import FlatModel, Mclr, Mlp

IMAGES = (3, 8, 8)


@pytest.fixture
def data() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.rand(12, *IMAGES), torch.arange(12) % 4


def fresh(of: Any = Mlp(hidden=5)) -> FlatModel:  # noqa: B008
    torch.manual_seed(1)
    return FlatModel(of.build(IMAGES, 4))


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    # Ours, and what torch's own class is given for it.
    *((name.lower(), {}, {}) for name in OPTIMIZERS),
    ("AdamW", {"weight_decay": 0.3}, {"weight_decay": 0.3}),
    (
        "adam",
        {"weight_decay": 0.3, "optimizer_settings": {"decoupled_weight_decay": True}},
        {"weight_decay": 0.3, "decoupled_weight_decay": True},
    ),
    (
        "sgd",
        {"momentum": 0.9, "optimizer_settings": {"nesterov": True}},
        {"momentum": 0.9, "nesterov": True},
    ),
    ("rmsprop", {"momentum": 0.5, "clip": 0.01}, {"momentum": 0.5}),
    ("sgd", {"clip": 0.01, "weight_decay": 0.1}, {"weight_decay": 0.1}),
    ("sgd", {"label_smoothing": 0.2}, {}),
    ("nadam", {"label_smoothing": 0.2, "precision": "bf16"}, {}),
]


@pytest.mark.parametrize(("name", "ours", "theirs"), CASES)
def test_three_steps_are_those_of_torchs_optimiser_on_layers(name, ours, theirs, data):
    local = LocalTraining(
        optimizer=name, epochs=3, batch_size=12, learning_rate=0.05, **ours
    )
    model, reference = fresh(), fresh()
    train(model, *data, local, rng())
    cls = {each.lower(): found for each, found in OPTIMIZERS.items()}[name.lower()]
    known = {"weight_decay": 0.0} if name.lower() != "rprop" else {}
    parameters = [*reference.module.parameters()]
    optimizer = cls(parameters, lr=0.05, **(known | theirs))
    batches = rng()
    for _ in range(3):
        order = torch.from_numpy(batches.permutation(12))
        reference.gradient.zero_()
        with torch.autocast("cpu", torch.bfloat16, local.precision == "bf16"):
            x, y = (each[order] for each in data)
            scores = reference.module(x)
            loss = cross_entropy(scores, y, label_smoothing=local.label_smoothing)
        loss.backward()
        if local.clip:
            norm = nn.utils.clip_grad_norm_(parameters, local.clip)
            assert norm > local.clip
        optimizer.step()
    torch.testing.assert_close(model.vector, reference.vector, rtol=1e-4, atol=1e-5)


def test_bf16_rounds_forward_passes_and_leaves_weights_alone(data):
    found = {}
    for precision in ("float32", "bf16"):
        model = fresh(Mclr())
        local = LocalTraining(precision=precision)
        with torch.no_grad():
            gradient_writer(model, settings=local)(*data)
        assert model.gradient.dtype == model.vector.dtype == torch.float32
        found[precision] = model.gradient
    apart = (found["bf16"] - found["float32"]).norm() / found["float32"].norm()
    assert 1e-4 < apart < 2e-2


@pytest.mark.parametrize(
    ("options", "rates"),
    [
        ({}, [1.0] * 4),
        ({"schedule": "cosine"}, [1.0, 0.853553, 0.5, 0.146447]),
        (
            {"schedule": "step", "schedule_settings": {"step_size": 2}},
            [1.0, 1.0, 0.1, 0.1],
        ),
        ({"warmup": 2}, [1 / 3, 2 / 3, 1.0, 1.0]),
        ({"warmup": 2, "schedule": "CosineAnnealingLR"}, [1 / 3, 2 / 3, 1.0, 0.5]),
        ({"warmup": 7}, [0.125, 0.25, 0.375, 0.5]),
    ],
)
def test_a_rounds_rate_follows_from_its_number(options, rates):
    local = LocalTraining(learning_rate=1.0, **options)
    # Also of a client that is asked before the first round, or is ahead of the server.
    for number, rate in enumerate([rates[0], *rates, rates[-1]]):
        now = local.in_round(number, 4)
        assert now.learning_rate == pytest.approx(rate, abs=1e-6)
        assert now.in_round(1, 4) == now


def test_each_image_is_transformed_by_draws_of_the_given_generator():
    images = torch.arange(6 * 192.0).view(6, *IMAGES)
    parts: list[Any] = ["horizontal_flip"]
    before = torch.random.get_rng_state()
    found = augmented(parts, images, rng())
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(augmented(parts, images, rng()), found)
    flipped = images.flip(-1)
    turned = [
        torch.equal(each, other) for each, other in zip(found, flipped, strict=True)
    ]
    kept = [torch.equal(each, other) for each, other in zip(found, images, strict=True)]
    assert [not each for each in turned] == kept
    assert 0 < sum(kept) < 6
    padded = {"RandomCrop": {"padding": 8, "fill": [-1.0, -2.0, -3.0]}}
    corners = augmented([padded], images, rng()).amin((0, 2, 3))
    assert corners.tolist() == [-1.0, -2.0, -3.0]
