from collections.abc import Callable
from math import log
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, normalize, softmax

from cfl_flower.learning.anchors import Anchors, class_means, presence_config
from cfl_flower.learning.decoupling import balanced_batch, represent, train_classifier
from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.types import Vector
from clients.fedccfa import FedCCFAClient
from strategies.fedccfa import FedCCFASettings
from tests.clients.conftest import INITIAL_PARTS as INITIAL

LOCAL = LocalTraining(epochs=1, learning_rate=0.05)


@pytest.fixture
def equip(equip: Callable[..., Any]) -> Callable[..., FedCCFAClient]:
    """Return FedCCFA's client in a round."""
    return lambda round, **own: equip(
        FedCCFAClient, round, FedCCFASettings(local=LOCAL, **own)
    )


def parts(client: FedCCFAClient, vector: Vector = INITIAL) -> tuple[Vector, Vector]:
    return client.split.divide(vector)


def test_the_balanced_classifier_by_hand(stream, equip):
    # Eq. 3: s full-batch steps from phi(0), on as many samples of every class.
    settings = {"balanced_steps": 3, "balanced_samples": 4, "classifier_rate": 0.2}
    client = equip(2, **settings)
    extractor, first = parts(client)
    x, y = stream.view(2, 2).train()
    z = represent(client.context.model.load(INITIAL), x)
    batch = balanced_batch(y.numpy(), 4, client.rng("balanced-samples"))
    assert np.bincount(y.numpy()[batch]).max() == 4
    rows = torch.tensor(client.split.rows(first))
    inputs = torch.column_stack([z[batch], torch.ones(len(batch))])
    truth = torch.nn.functional.one_hot(y[batch], 10)
    for _ in range(3):
        wrong = softmax(inputs @ rows.T, 1) - truth
        rows -= 0.2 * wrong.T @ inputs / len(batch)
    # What it had learnt before is of no effect on it.
    client.context.state.save(1, {"classifier": 5 * first})
    arrays, _, _ = client.fit([extractor], {})
    assert client.split.rows(arrays[-1]) == pytest.approx(rows.numpy(), abs=1e-5)


def test_the_first_own_classifier_goes_on_from_the_balanced_one(stream, equip):
    for round in (1, 2):
        client = equip(round)
        extractor, _ = parts(client)
        before = client.context.state.load(round).get("classifier")
        (trained, own, anchors, balanced), _, told = client.fit([extractor], {})
        x, y = stream.view(2, round).train()
        # Which classes it has, and not how many samples of each.
        held = np.frombuffer(told["classes"], np.float32)  # type: ignore[arg-type]
        assert held.tolist() == (np.bincount(y, minlength=10) > 0).tolist()
        z = represent(client.context.model.load(INITIAL), x)
        start = balanced if before is None else before
        assert (before is None) == (round == 1)
        rng, local = client.rng("classifier-batches"), client.classifier_training()
        expected = train_classifier(client.split, start, z, y, local, rng)
        assert np.array_equal(own, expected)
        assert np.array_equal(client.context.state.at(round)["classifier"], own)
        # Anchors are the classes' means under the extractor that was just trained.
        model = client.context.model.load(client.split.join(trained, own))
        points = class_means(represent(model, x), y, 10).points
        assert anchors == pytest.approx(points.ravel(), abs=1e-6)


ANCHORS = Anchors(
    np.arange(60, dtype=np.float32).reshape(10, 6) % 7 - 3, np.arange(10) != 3
)
COUNTS = np.array([30, 10, 0, 0, 0, 0, 0, 0, 0, 0])


ENTROPY = 0.75 * log(4 / 3) + 0.25 * log(4)


@pytest.mark.parametrize(
    ("settings", "weight"),
    [
        ({}, ENTROPY / 20),
        ({"gamma": 5.0}, ENTROPY / 5),
        ({"alignment_weight": 0.5}, 0.5),
    ],
)
def test_the_loss_of_the_extractor_by_hand(settings, weight, stream, equip):
    # Eq. 9: the cross-entropy, and H(P(Y)) / gamma of the contrast with the anchors.
    client = equip(30, **settings)
    loss = client.alignment(ANCHORS, COUNTS)
    x, _ = stream.view(2, 1).train()
    x, y = x[:4], torch.tensor([0, 1, 1, 7])
    model = client.context.model.load(INITIAL)
    z = represent(model, x)
    present = torch.tensor(ANCHORS.present)
    anchors = normalize(torch.tensor(ANCHORS.points))
    powers = (normalize(z) @ anchors.T / 0.1).exp() * present
    gap = -(powers[torch.arange(4), y] / powers.sum(1)).log().mean()
    with torch.no_grad():
        found = loss(model.module, x, y)
        expected = cross_entropy(model.module(x), y) + weight * gap
    assert float(found) == pytest.approx(float(expected), rel=1e-5)


def test_features_are_aligned_from_the_round_on_that_the_paper_counts_as_t_s(equip):
    # The paper counts rounds from 0.
    assert equip(20).alignment(ANCHORS, COUNTS) is None
    assert equip(21).alignment(ANCHORS, COUNTS) is not None
    assert equip(21).alignment(None, COUNTS) is None
    nobody = Anchors(ANCHORS.points, np.zeros(10, bool))
    assert equip(21).alignment(nobody, COUNTS) is None


def test_client_aligns_with_and_continues_from_what_came_back(equip):
    client = equip(1)
    extractor, classifier = parts(client)
    client.fit([extractor], {})
    made = client.context.state.at(1)
    anchors = made["anchors"] + 1
    client.evaluate([extractor, 2 * classifier, anchors.ravel()], {})
    kept = equip(2).context.state.load(2)
    aligned = equip(2).anchors([extractor], {}, kept)
    assert np.array_equal(aligned.points, anchors)
    assert np.array_equal(aligned.present, made["present"])
    assert np.array_equal(kept["classifier"], 2 * classifier)


def test_all_participants_are_aligned_with_global_anchors(equip):
    """Also one that trains for the first time, and whatever it has kept."""
    found = []
    for kept in ({}, {"anchors": ANCHORS.points + 1, "present": ANCHORS.present}):
        client = equip(21, anchors="global")
        extractor, classifier = parts(client)
        client.context.state.save(20, {"classifier": classifier, **kept})
        config = presence_config(ANCHORS)
        arrays, _, _ = client.fit([extractor, ANCHORS.points.ravel()], config)
        found.append(arrays[0])
        assert client.anchors([], {}, {}) is None
    assert np.array_equal(*found)
    unaligned = equip(21, anchors="global", alignment_weight=0.0)
    config = presence_config(ANCHORS)
    arrays, _, _ = unaligned.fit([extractor, ANCHORS.points.ravel()], config)
    assert not np.array_equal(arrays[0], found[0])


@pytest.mark.parametrize(("clustering", "balanced"), [("local", 0), ("oracle", 1)])
def test_without_balance_a_classifier_goes_on_from_phi_0(
    clustering, balanced, stream, equip
):
    client = equip(1, clustering=clustering)
    extractor, first = parts(client)
    (_, own, *_), _, _ = client.fit([extractor], {})
    x, y = stream.view(2, 1).train()
    z = represent(client.context.model.load(INITIAL), x)
    start = client.fit_balanced(z, y) if balanced else first
    assert np.array_equal(own, client.fit_classifier(start, z, y))


def test_a_device_that_lost_its_memory_is_not_aligned_at_first(equip):
    # It takes over what comes back, and does not know which classes that is about.
    client = equip(21)
    extractor, classifier = parts(client)
    client.evaluate([extractor, classifier, np.ones(60, np.float32)], {})
    assert client.anchors([extractor], {}, client.context.state.load(22)) is None
    arrays, _, _ = equip(22).fit([extractor], {})
    assert all(np.isfinite(array).all() for array in arrays)


def test_a_training_that_diverged_does_not_spoil_the_next(equip):
    sound, _ = parts(equip(1))
    arrays, _, _ = equip(1).fit([sound], {})
    broken, _, _ = equip(2).fit([sound * np.float32(1e38)], {})
    assert not all(np.isfinite(array).all() for array in broken)
    kept = equip(3).context.state.load(3)
    assert np.array_equal(kept["classifier"], arrays[1])
    again, _, _ = equip(3).fit([sound], {})
    assert all(np.isfinite(array).all() for array in again)
