"""Clients that mix models, against their papers."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from cfl_flower.data.worlds.stream import Stream
from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.models import Mclr, build_model
from cfl_flower.types import FloatArray, Vector
from clients.apfl import APFLClient, next_alpha
from clients.fedem import FedEMClient, mix_predictions, responsibilities
from clients.fedrc import FedRCClient
from strategies.apfl import APFLSettings
from strategies.fedem import FedEMSettings

MODELS = [build_model(Mclr(), (1, 8, 8), 10, seed).to_vector() for seed in range(2)]
RATE = 0.1
LOCAL = LocalTraining(epochs=1, batch_size=999, learning_rate=RATE)
"""In which all samples are one batch."""


# APFL


W0, W1 = MODELS
APFL = APFLSettings(local=LOCAL)


def gradient(stream: Stream, weights: Vector) -> Vector:
    """Return the gradient of softmax regression on all samples of client 2."""
    x, y = stream.view(2, 1).train()
    flat = torch.from_numpy(weights.copy()).requires_grad_()
    matrix, bias = flat[:640].view(10, 64), flat[640:]
    cross_entropy(x.flatten(1) @ matrix.T + bias, y).backward()
    return flat.grad.numpy()


@pytest.mark.parametrize(
    ("start", "expected"), [(0.5, 0.7), (0.1, 0.3), (0.95, 1.0), (-5.0, 0.0)]
)
def test_alpha_moves_against_its_gradient_within_0_and_1(start, expected):
    # <v - w, g> = 2 * 1 - 1 * 4 = -2.
    apart, along = torch.tensor([2.0, 1.0]), torch.tensor([1.0, -4.0])
    assert next_alpha(start, apart, along, RATE) == pytest.approx(expected)


def test_apfl_by_the_equations(stream, make_context):
    first = replace(make_context(1), settings=APFL)
    (sent,), count, _ = APFLClient(first).fit([W0], {})
    assert count == len(stream.view(2, 1).labels)
    # The client starts from v = w, where the gradient of alpha is 0.
    assert sent == pytest.approx(W0 - RATE * gradient(stream, W0), abs=1e-6)
    v = W0 - RATE * 0.5 * gradient(stream, W0)
    kept = first.state.load(2)
    assert kept["model"] == pytest.approx(v, abs=1e-6)
    assert kept["alpha"].tolist() == [0.5]

    second = replace(make_context(2), settings=APFL)
    (sent,), _, _ = APFLClient(second).fit([W1], {})
    slope = gradient(stream, 0.5 * v + 0.5 * W1)
    assert sent == pytest.approx(W1 - RATE * gradient(stream, W1), abs=1e-6)
    kept = second.state.load(3)
    assert kept["model"] == pytest.approx(v - RATE * 0.5 * slope, abs=1e-6)
    alpha = 0.5 - RATE * float((v - W1) @ slope)
    assert 0 < alpha < 1
    assert alpha != pytest.approx(0.5, abs=1e-3)
    assert kept["alpha"] == pytest.approx([alpha], abs=1e-6)

    mixture = alpha * kept["model"] + (1 - alpha) * W0
    served = APFLClient(replace(make_context(2), settings=APFL)).served([W0])
    assert served == pytest.approx(mixture, abs=1e-6)
    assert served.dtype == np.float32


def test_who_has_not_trained_is_served_the_global_model(make_context):
    served = APFLClient(replace(make_context(1), settings=APFL)).served([W1])
    assert served == pytest.approx(W1, abs=1e-7)


def test_both_models_are_counted_as_work(make_context):
    context = replace(make_context(1), settings=APFL)
    _, count, _ = APFLClient(context).fit([W0], {})
    assert context.model.passes == 2 * 3 * count


# FedEM


FEDEM = FedEMSettings(local=LOCAL, components=2)


def probabilities(model: Vector, x: torch.Tensor) -> FloatArray:
    """Return softmax regression's probabilities of labels, (n, 10), in float64."""
    numbers = model.astype(np.float64)
    scores = x.flatten(1).numpy() @ numbers[:640].reshape(10, 64).T + numbers[640:]
    shares = np.exp(scores)
    return shares / shares.sum(1, keepdims=True)


def test_a_component_without_a_share_stays_without():
    found = responsibilities(torch.tensor([[0.0], [9.0]]), torch.tensor([0.0, 1.0]))
    assert found.tolist() == [[0.0], [1.0]]
    mixed = mix_predictions(
        torch.tensor([[[0.9, 0.1]], [[0.5, 0.5]]]).log(), torch.tensor([0.0, 1.0])
    )
    assert mixed.exp().numpy() == pytest.approx(np.array([[0.5, 0.5]]))


def test_fedem_by_the_equations(stream, make_context):
    x, y = stream.view(2, 1).train()
    mixture = np.array([0.5, 0.5])
    for round in (1, 2):
        context = replace(make_context(round), settings=FEDEM)
        trained, count, metrics = FedEMClient(context).fit(MODELS, {})
        assert (count, metrics) == (len(y), {})
        shares = [probabilities(model, x) for model in MODELS]
        right = np.stack([each[np.arange(len(y)), y] for each in shares])
        q = mixture[:, None] * right
        q /= q.sum(0)
        mixture = q.mean(1)
        kept = context.state.load(round + 1)["mixture"]
        assert kept == pytest.approx(mixture, abs=1e-6)
        assert kept.sum() == pytest.approx(1)
        for number, model in enumerate(MODELS):
            # The gradient of the mean of q_i l_i: (p_i - e_i) q_i x_i^T / n.
            error = (shares[number] - np.eye(10)[y]) * q[number][:, None] / len(y)
            slope = np.concatenate(
                [(error.T @ x.flatten(1).numpy()).ravel(), error.sum(0)]
            )
            assert trained[number] == pytest.approx(model - RATE * slope, abs=1e-6)
    assert abs(mixture[0] - 0.5) > 0.01
    # It trains from the component that had the larger share, says the client.
    before = context.state.load(2)["mixture"]
    start = FedEMClient(context).starting_model(MODELS)
    assert start is MODELS[int(before.argmax())]


def test_fedrc_divides_by_the_label_shares_of_components(stream, make_context):
    x, y = stream.view(2, 1).train()
    context = replace(make_context(1), settings=FEDEM)
    classes = np.linspace(0.02, 0.18, 10) * np.array([[1.0], [0.0]]) + [[0.0], [0.1]]
    sent = [*MODELS, classes.astype(np.float32).ravel()]
    *trained, told = FedRCClient(context).fit(sent, {})[0]
    right = np.stack([probabilities(m, x)[np.arange(len(y)), y] for m in MODELS])
    # q is proportional to pi_m p_m(y | x) / C_{y;m}.
    q = right / classes[:, y]
    q /= q.sum(0)
    assert context.state.load(2)["mixture"] == pytest.approx(q.mean(1), abs=1e-6)
    joint = np.stack([(q * (y.numpy() == k)).mean(1) for k in range(10)], axis=1)
    assert told.reshape(2, 10) == pytest.approx(joint, abs=1e-6)
    assert told.sum() == pytest.approx(1)
    # With even shares it is FedEM.
    even = [*MODELS, np.full(20, 0.1, np.float32)]
    plain = FedEMClient(replace(make_context(1), settings=FEDEM)).fit(MODELS, {})[0]
    same = FedRCClient(replace(make_context(1), settings=FEDEM)).fit(even, {})[0]
    for one, other in zip(plain, same[:2], strict=True):
        assert other == pytest.approx(one, abs=1e-6)
    assert any((one != other).any() for one, other in zip(plain, trained, strict=True))


@pytest.mark.parametrize("trained", [True, False])
def test_predictions_are_mixed(trained, stream, make_context):
    context = replace(make_context(1), settings=FEDEM)
    if trained:
        FedEMClient(context).fit(MODELS, {})
        mixture = context.state.load(2)["mixture"]
    else:
        # A newcomer's is that of one E-step on its training samples.
        x, y = stream.view(2, 1).train()
        right = np.stack([probabilities(m, x)[np.arange(len(y)), y] for m in MODELS])
        mixture = (right / right.sum(0)).mean(1)
    loss, count, metrics = FedEMClient(context).evaluate(MODELS, {})
    x, y = stream.view(2, 1).test()
    shares = np.stack([probabilities(model, x) for model in MODELS])
    mixed = np.tensordot(mixture, shares, 1)
    assert count == len(y)
    assert loss == pytest.approx(-np.log(mixed[np.arange(len(y)), y]).mean(), rel=1e-5)
    assert metrics["correct"] == np.count_nonzero(mixed.argmax(1) == y.numpy())
