"""FedEM's client against its paper."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cfl_flower.client.context import ClientContext
from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.models import Mclr, initial_vector
from cfl_flower.types import FloatArray, Vector
from clients.fedem import FedEMClient, mix_predictions, responsibilities
from strategies.fedem import FedEMSettings
from tests.clients.conftest import MakeContext

MODELS = [initial_vector(Mclr(), (1, 8, 8), 10, seed) for seed in range(2)]
RATE = 0.1


def prepare(make_context: MakeContext, round: int) -> ClientContext:
    """Return a context of FedEM, in which all samples are one batch."""
    local = LocalTraining(epochs=1, batch_size=999, learning_rate=RATE)
    settings = FedEMSettings(local=local, components=2)
    return replace(make_context(round), settings=settings)


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


def test_two_rounds_by_the_equations(stream, make_context):
    x, y = stream.view(2, 1).train()
    mixture = np.array([0.5, 0.5])
    for round in (1, 2):
        context = prepare(make_context, round)
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


@pytest.mark.parametrize("trained", [True, False])
def test_predictions_are_mixed(trained, stream, make_context):
    context = prepare(make_context, 1)
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
