"""Clients with an extractor in common, each of whose rounds follows from its parts."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from cfl_flower.learning.anchors import (
    AlignedLoss,
    Anchors,
    class_means,
    contrast,
    distance,
    presence_config,
)
from cfl_flower.learning.decoupling import (
    initial_classifier,
    represent,
    train_classifier,
)
from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.learning.training import train
from cfl_flower.models import FlatModel
from cfl_flower.models.network import Network
from cfl_flower.seeding import generator
from cfl_flower.types import Vector
from clients.families.decoupled import DecoupledClient
from clients.fedbabu import FedBABUClient
from clients.fedccfa import FedCCFAClient
from clients.fedfm import FedFMClient
from clients.fedpac import FedPACClient, statistics
from strategies.fedbabu import FedBABUSettings
from strategies.fedccfa import FedCCFASettings
from strategies.fedfm import FedFMSettings
from strategies.fedpac import FedPACSettings
from strategies.fedrep import FedRepSettings
from tests.clients.conftest import INITIAL_PARTS as INITIAL

LOCAL = LocalTraining(epochs=1, learning_rate=0.05, mu=0.2)
HEAD = replace(LOCAL, epochs=1, learning_rate=0.1, mu=0.0)
POINTS = np.random.default_rng(0).normal(size=(10, 6)).astype(np.float32)
ANCHORS = Anchors(POINTS, np.arange(10) != 4)


def fitted(client: Any, whole: Vector, purpose: str = "batches", **more: Any) -> Vector:
    """Return what a model is after its round's training, by hand."""
    context = client.context
    samples = context.stream.view(2, context.round).train()
    rng = generator(0, purpose, context.round, 2)
    model = context.model.load(whole)
    train(model, *samples, LOCAL, rng, **more)
    trained: Vector = model.to_vector()
    return trained


def headed(client: Any, extractor: Vector, head: Vector) -> Vector:
    """Return what a classifier is after its round's training, by hand."""
    context = client.context
    x, y = context.stream.view(2, context.round).train()
    z = represent(context.model.load(client.split.join(extractor, head)), x)
    rng = generator(0, "classifier-batches", context.round, 2)
    return train_classifier(client.split, head, z, y, HEAD, rng)


def test_fedrep_trains_its_own_classifier_and_then_the_extractor(equip):
    settings = FedRepSettings(local=LOCAL)
    client = equip(DecoupledClient, 1, settings)
    split = client.split
    received = split.divide(INITIAL)[0]
    head = initial_classifier(split, generator(0, "classifier", 0, 2))
    for round in (1, 2):
        client = equip(DecoupledClient, round, settings)
        (extractor,), _, _ = client.fit([received], {})
        head = headed(client, received, head)
        whole = fitted(client, split.join(received, head), part=split.part)
        assert np.array_equal(extractor, split.divide(whole)[0])
        assert np.array_equal(client.classifier(round + 1), head)


def test_fedbabu_trains_the_extractor_below_the_first_classifier(equip):
    client = equip(FedBABUClient, 1, FedBABUSettings(local=LOCAL))
    received, first = client.split.divide(INITIAL)
    (extractor,), _, _ = client.fit([received + 0.01], {})
    start = client.split.join(received + 0.01, first)
    whole = fitted(client, start, part=client.split.part)
    assert np.array_equal(extractor, client.split.divide(whole)[0])


def test_fedpac_measures_before_and_aligns_after_its_classifier(equip):
    client = equip(FedPACClient, 1, FedPACSettings(local=LOCAL, alignment_weight=0.5))
    split = client.split
    received = split.divide(INITIAL)[0]
    head = initial_classifier(split, generator(0, "classifier", 0, 2))
    sent = [received, POINTS.ravel()]
    arrays, _, metrics = client.fit(sent, presence_config(ANCHORS))
    x, y = client.context.stream.view(2, 1).train()
    counts = np.bincount(y.numpy(), minlength=10)
    z = represent(client.context.model.load(split.join(received, head)), x)
    variance, means = statistics(z, y, counts)
    head = headed(client, received, head)
    loss = AlignedLoss(distance(ANCHORS, x.device), 0.5)
    start = split.join(received, head)
    whole = fitted(client, start, loss=loss, part=split.part)
    z = represent(client.context.model.load(whole), x)
    points = class_means(z, y, 10).points.ravel()
    expected = [split.divide(whole)[0], head, points, means]
    assert all(map(np.array_equal, arrays, expected))
    assert metrics["variance"] == variance
    assert metrics["classes"] == counts.astype(np.float32).tobytes()


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (FedPACClient, FedPACSettings),
        (FedCCFAClient, FedCCFASettings),
        (FedFMClient, FedFMSettings),
    ],
)
def test_means_are_by_the_statistics_after_the_training(kind, settings, make_context):
    body = nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.BatchNorm1d(6))
    model = FlatModel(Network(body, nn.Linear(6, 10)))
    initial = model.to_vector()
    own = {"model": model, "settings": settings(local=LOCAL)}
    context = replace(make_context(1), initial=initial.copy, **own)
    start = initial if kind is FedFMClient else model.split.divide(initial)[0]
    sent, config = [start, POINTS.ravel()], presence_config(ANCHORS)
    first, *others = kind(context).fit(sent, config)[0]
    # FedFM sends a whole model and the means, others a classifier in between.
    whole = model.split.join(first, others[0]) if kind is not FedFMClient else first
    x, y = context.stream.view(2, 1).train()
    means = class_means(represent(model.load(whole), x), y, 10).points.ravel()
    assert np.array_equal(others[0 if kind is FedFMClient else 1], means)
    trained = len(model.weights)
    assert not np.array_equal(whole[trained:], initial[trained:])


@pytest.mark.parametrize(("round", "aligned"), [(3, False), (4, True)])
def test_fedfm_aligns_with_the_anchors_from_its_first_round_on(round, aligned, equip):
    terms = {"alignment_weight": 0.5, "temperature": 0.3, "start": 3}
    client = equip(FedFMClient, round, FedFMSettings(local=LOCAL, **terms))
    sent = [INITIAL, POINTS.ravel()]
    arrays, _, metrics = client.fit(sent, presence_config(ANCHORS))
    x, y = client.context.stream.view(2, round).train()
    loss = AlignedLoss(contrast(ANCHORS, 0.3, torch.device("cpu")), 0.5)
    whole = fitted(client, INITIAL, loss=loss if aligned else None)
    z = represent(client.context.model.load(whole), x)
    assert np.array_equal(arrays[0], whole)
    assert np.array_equal(arrays[1], class_means(z, y, 10).points.ravel())
    counts = np.bincount(y.numpy(), minlength=10).astype(np.float32)
    assert metrics["classes"] == counts.tobytes()
