"""What StoCFL's clients train, what they report of their data, and when again."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from cfl_flower.client.drift_report import DriftReport
from cfl_flower.clustering.similarity import normalise, sketch
from cfl_flower.data.datasets.own import Folder
from cfl_flower.data.worlds.changes import Regroup
from cfl_flower.data.worlds.partition import Partition
from cfl_flower.data.worlds.stream import Stream
from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.models import FlatModel, Mclr, build_model
from cfl_flower.types import FloatArray, IntArray, Vector
from clients.stocfl import StoCFLClient
from strategies.stocfl import StoCFLSettings
from tests.clients.conftest import MakeContext

INITIAL = build_model(Mclr(), (1, 8, 8), 10, 0).to_vector()
FULL = LocalTraining(epochs=1, batch_size=999)
STO = StoCFLSettings(local=FULL, representation_epochs=2)


def client_of(make_context: MakeContext, round: int, **changes: object) -> StoCFLClient:
    settings = replace(STO, **changes)  # type: ignore[arg-type]
    return StoCFLClient(replace(make_context(round), settings=settings))


def gradient(model: Vector, x: FloatArray, y: IntArray) -> FloatArray:
    """Return the softmax regression's gradient: (softmax(Wx + b) - e_y) (x, 1)^T."""
    weights, bias = model[:640].reshape(10, 64).astype(float), model[640:]
    inputs = x.reshape(len(x), 64).astype(float)
    logits = inputs @ weights.T + bias
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    errors = shares / shares.sum(axis=1, keepdims=True) - np.eye(10)[y]
    found = errors.T @ np.column_stack([inputs, np.ones(len(x))]) / len(x)
    return np.concatenate([found[:, :64].ravel(), found[:, 64]])


def samples(client: StoCFLClient, round: int) -> tuple[FloatArray, IntArray]:
    x, y = client.samples(round)
    return x.numpy(), y.numpy()


def unit(vector: FloatArray) -> FloatArray:
    length: float = np.linalg.norm(vector)
    return vector / length


def test_psi_is_the_direction_of_the_gradient_at_the_anchor_received(make_context):
    client = client_of(make_context, 0)
    rng = np.random.default_rng(0)
    elsewhere = INITIAL + rng.normal(size=650).astype(np.float32)
    directions = []
    for anchor in (INITIAL, elsewhere):
        (psi,), count, _ = client.answer([anchor], {"represent": True})
        x, y = samples(client, 1)
        assert psi == pytest.approx(unit(gradient(anchor, x, y)), abs=1e-6)
        assert count == len(y)
        directions.append(psi)
    # The anchor makes a difference, so the next test can tell which one was taken.
    assert directions[0] @ directions[1] < 0.99


def test_psi_as_a_difference_is_the_anchor_less_the_trained_model(make_context):
    # Its epochs are its own: the steps of the other training are of no effect.
    local = replace(FULL, steps=1)
    client = client_of(make_context, 0, representation="difference", local=local)
    (psi,), _, _ = client.answer([INITIAL], {"represent": True})
    x, y = samples(client, 1)
    model = INITIAL.astype(float)
    for _ in range(2):
        model = model - FULL.learning_rate * gradient(model, x, y)
    assert psi == pytest.approx(unit(INITIAL - model), abs=1e-5)
    once = unit(gradient(INITIAL, x, y))
    assert np.abs(psi - once).max() > 1e-4


def test_theta_is_trained_near_omega_and_omega_alone(make_context):
    # One step each: theta - eta (grad f + lambda (theta - omega)), omega - eta grad f.
    omega, theta = INITIAL, INITIAL * np.float32(2)
    client = client_of(make_context, 1, regularisation=0.5)
    (near, alone), count, _ = client.fit([omega, theta], {})
    x, y = samples(client, 1)
    assert count == len(y)
    assert client.starting_model([omega, theta]) is theta
    pull = gradient(theta, x, y) + 0.5 * (theta - omega)
    assert near == pytest.approx(theta - FULL.learning_rate * pull, abs=1e-6)
    trained = omega - FULL.learning_rate * gradient(omega, x, y)
    assert alone == pytest.approx(trained, abs=1e-6)
    # One after the other, omega is asked for by itself, before its round.
    (only,), _, _ = client_of(make_context, 0).answer([omega], {"train_global": True})
    assert only == pytest.approx(trained, abs=1e-6)
    turns = client_of(make_context, 1, omega="sequential", regularisation=0.5)
    arrays, _, _ = turns.fit([omega, theta], {})
    assert np.array_equal(arrays, [near])


def test_unlabelled_samples_resemble_a_cluster_by_their_psi(make_context):
    client, anchor = client_of(make_context, 0), 2 * INITIAL
    x, _ = client.samples(1)
    weights, bias = INITIAL[:640].reshape(10, 64), INITIAL[640:]
    labels = (x.numpy().reshape(len(x), 64) @ weights.T + bias).argmax(axis=1)
    psi = gradient(anchor, x.numpy(), labels)
    found = client.similarities(anchor, [INITIAL] * 3, [3 * psi, -psi, 0 * psi], x, 1)
    assert found == pytest.approx([1, -1, 0], abs=1e-6)


def test_running_statistics_count_as_zeros_behind_the_gradient(make_context):
    layers = nn.Flatten(), nn.BatchNorm1d(64, affine=False), nn.Linear(64, 10)
    model = FlatModel(nn.Sequential(*layers))
    context = replace(make_context(0), model=model, settings=STO)
    (psi,), _, _ = StoCFLClient(context).answer(
        [model.to_vector()], {"represent": True}
    )
    assert len(psi) == 650 + 128
    assert np.linalg.norm(psi[:650]) == pytest.approx(1, abs=1e-6)
    assert not psi[650:].any()


def test_a_sketched_psi_is_the_normalised_sketch_of_psi(make_context):
    (psi,), _, _ = client_of(make_context, 0).answer([INITIAL], {"represent": True})
    sketched = client_of(make_context, 0, sketch=64)
    (told,), _, _ = sketched.answer([INITIAL], {"represent": True})
    assert told == pytest.approx(normalise(sketch(psi, 64, 0)), abs=1e-6)


def test_a_malicious_clients_psi_has_the_length_of_an_honest_one(make_context):
    context = replace(make_context(0), settings=STO, attack="random")
    (psi,), _, _ = StoCFLClient(context).answer([INITIAL], {"represent": True})
    assert np.linalg.norm(psi) == pytest.approx(1, abs=1e-6)


def test_psi_after_a_drift_is_at_the_first_anchor_not_at_a_trained_model(make_context):
    # Other label groups from round 3 on.
    client_of(make_context, 0, refresh="on_drift").remember(1)
    trained = INITIAL + 1
    asked = {"reported": 0, "test": True}
    assert (
        client_of(make_context, 1, refresh="on_drift").report(asked, 2, [trained]) == {}
    )
    client = client_of(make_context, 2, refresh="on_drift")
    told = DriftReport.from_metrics(client.report(asked, 3, [trained]), 650, "psi")
    x, y = samples(client, 3)
    expected = unit(gradient(INITIAL, x, y))
    assert told.representation == pytest.approx(expected, abs=1e-6)
    assert told.num_examples == len(y)


def test_data_are_compared_with_those_of_the_last_report_taken(make_context):
    client_of(make_context, 0, refresh="on_drift").remember(1)
    # The answer of round 2 never arrives: the server still refers to round 0.
    for round in (2, 3):
        told = client_of(make_context, round, refresh="on_drift").report(
            {"reported": 0}, round + 1
        )
        assert "representation" in told
    state = make_context(4).state.part("report")
    assert state.at(0)
    assert state.at(3)
    taken = client_of(make_context, 4, refresh="on_drift").report({"reported": 3}, 5)
    assert taken == {}


def on_a_device(folder: Path, make_context: MakeContext, round: int) -> StoCFLClient:
    """Return the client of a device that reads its folder before the task."""
    dataset = Folder(shape=(1, 8, 8), classes=10)
    stream = Stream(dataset, Partition(), Regroup([]), 1, 0, 9, str(folder))
    settings = replace(STO, refresh="on_drift")
    context = replace(make_context(round), stream=stream, settings=settings)
    return StoCFLClient(replace(context, place=0, folder=folder))


def write(folder: Path, pixels: FloatArray, labels: IntArray, changed: int) -> None:
    path = folder / "a.npz"
    np.savez(path, x=pixels, y=labels)
    os.utime(path, (changed, changed))


def test_devices_report_again_if_only_images_change(make_context, tmp_path):
    folder = tmp_path / "own"
    folder.mkdir()
    rng = np.random.default_rng(0)
    pixels = rng.integers(256, size=(40, 1, 8, 8)).astype(np.uint8)
    labels = np.arange(40) % 10
    write(folder, pixels, labels, 100)
    on_a_device(folder, make_context, 0).remember(1)
    asked = {"reported": 0}
    assert on_a_device(folder, make_context, 1).report(asked, 2) == {}
    # The same images once more are no other data.
    write(folder, pixels, labels, 200)
    assert on_a_device(folder, make_context, 1).report(asked, 2) == {}
    write(folder, np.rot90(pixels, 2, (2, 3)), labels, 300)
    assert "representation" in on_a_device(folder, make_context, 2).report(asked, 3)
    other = labels[::-1].copy()
    write(folder, np.rot90(pixels, 2, (2, 3)), other, 400)
    assert "representation" in on_a_device(folder, make_context, 3).report(
        {"reported": 2}, 4
    )
