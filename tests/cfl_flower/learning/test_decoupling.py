import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from cfl_flower.errors import ConfigError
from cfl_flower.learning.anchors import Anchors, class_means, contrast, distance
from cfl_flower.learning.decoupling import (
    balanced_batch,
    label_entropy,
    represent,
    train_classifier,
)
from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.learning.training import train
from cfl_flower.models import (
    FedCcfaCnn,
    FlatModel,
    FlexCflFemnistCnn,
    Mclr,
    Mlp,
    Network,
    Recurrent,
    ResNet18,
    ShuffleNetV2,
)

CPU = torch.device("cpu")
NETWORKS = [
    (Mclr(), (1, 8, 8)),
    (Mlp(7), (1, 8, 8)),
    (FedCcfaCnn(), (1, 28, 28)),
    (FlexCflFemnistCnn(), (1, 28, 28)),
    (ResNet18(), (3, 16, 16)),
    (ShuffleNetV2(), (1, 9, 9)),
    (Recurrent("gru"), (5, 30)),
]


# A model's vector in two parts


@pytest.mark.parametrize(("settings", "shape"), NETWORKS)
def test_every_network_splits_into_extractor_and_classifier(settings, shape):
    model = FlatModel(settings.build(shape, 10))
    split, vector = model.split, model.to_vector()
    extractor, classifier = split.divide(vector)
    assert (len(extractor), len(classifier)) == split.lengths
    assert np.array_equal(split.join(extractor, classifier), vector)
    layer = model.module.classifier
    rows = split.rows(classifier)
    assert np.array_equal(rows[:, :-1], layer.weight.detach().numpy())
    assert np.array_equal(rows[:, -1], layer.bias.detach().numpy())
    assert np.array_equal(split.flatten(rows), classifier)
    x = torch.rand(3, *shape)
    assert represent(model, x).shape == (3, split.width)


@pytest.mark.parametrize(
    "network",
    [
        nn.Sequential(nn.Flatten(), nn.Linear(4, 2)),
        Network(nn.Flatten(), nn.Linear(4, 2, bias=False)),
        Network(nn.Flatten(), nn.Sequential(nn.Linear(4, 2))),
    ],
)
def test_a_network_without_a_linear_classifier_is_refused(network):
    with pytest.raises(ConfigError, match="no linear classifier"):
        _ = FlatModel(network).split


def test_training_a_classifier_equals_training_with_a_frozen_extractor():
    model = FlatModel(Mlp(7).build((1, 8, 8), 10))
    split, local = model.split, LocalTraining(epochs=2, momentum=0.9)
    _, classifier = split.divide(model.to_vector())
    x, y = torch.rand(30, 1, 8, 8), torch.arange(30) % 10
    z = represent(model, x)
    # What changes images is for images alone.
    flipped = replace(local, augment=["random_horizontal_flip"])
    found = train_classifier(split, classifier, z, y, flipped, np.random.default_rng(0))
    last = slice(split.start, split.stop)
    train(model, x, y, local, np.random.default_rng(0), part=last)
    assert found == pytest.approx(split.divide(model.to_vector())[1], abs=1e-6)


# Batches, anchors, entropy


@given(st.lists(st.integers(0, 5), max_size=40), st.integers(1, 7), st.integers(0, 99))
@settings(max_examples=50, deadline=None)
def test_a_balanced_batch_has_equally_many_samples_of_each_label(labels, each, seed):
    of = np.array(labels, np.int64)
    batch = balanced_batch(of, each, np.random.default_rng(seed))
    found = np.bincount(of[batch], minlength=6)
    assert found.tolist() == [each * (label in labels) for label in range(6)]
    for label in set(labels):
        own = batch[of[batch] == label]
        if labels.count(label) >= each:
            assert len(set(own.tolist())) == each


def test_anchors_are_class_means():
    z = torch.tensor([[1.0, 0.0], [3.0, 2.0], [5.0, 5.0]])
    means = class_means(z, torch.tensor([2, 2, 0]), 3)
    assert means.points.tolist() == [[5, 5], [0, 0], [2, 1]]
    assert means.present.tolist() == [True, False, True]


def test_entropy_skips_absent_labels():
    assert label_entropy(np.array([3, 0, 0])) == 0
    assert label_entropy(np.full(10, 7)) == pytest.approx(math.log(10))


# Alignment


def test_classes_without_an_anchor_neither_attract_nor_repel():
    points = np.float32([[2, 0], [0, 3], [0, 0]])
    anchors = Anchors(points, np.array([True, True, False]))
    two = Anchors(points[:2], np.array([True, True]))
    z = torch.tensor([[1.0, 1.0], [1.0, 3.0]], requires_grad=True)
    for masked, plain in (
        (contrast(anchors, 0.1, CPU), contrast(two, 0.1, CPU)),
        (distance(anchors, CPU), distance(two, CPU)),
    ):
        mixed = masked(z, torch.tensor([0, 2]))
        assert float(mixed.detach()) == pytest.approx(
            float(plain(z[:1].detach(), torch.tensor([0]))) / 2
        )
        (gradient,) = torch.autograd.grad(mixed, z)
        assert torch.isfinite(gradient).all()
        assert gradient[1].tolist() == [0, 0]
        none = masked(z, torch.tensor([2, 2]))
        assert float(none.detach()) == 0
        assert torch.autograd.grad(none, z)[0].tolist() == [[0, 0], [0, 0]]
