"""FedDAA's client: its prototypes, its earlier data, and which of them it trains on."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.models import Mclr, build_model
from cfl_flower.types import FloatArray
from clients.feddaa import FedDAAClient
from clients.fedrc import FedRCClient
from strategies.feddaa import FedDAASettings
from tests.clients.conftest import MakeContext

SETTINGS = FedDAASettings(local=LocalTraining(epochs=1, batch_size=999))
MODELS = [build_model(Mclr(), (1, 8, 8), 10, seed).to_vector() for seed in range(2)]
EVEN = np.full(20, 0.1, np.float32)
STEP = {"step": 3}


def client_in(make_context: MakeContext, round: int, phase: str) -> FedDAAClient:
    return FedDAAClient(replace(make_context(round), settings=SETTINGS, phase=phase))


def means(client: FedDAAClient, round: int) -> FloatArray:
    """Return softmax regression's mean outputs of a round's labels, (10, 10)."""
    x, y = client.samples(round)
    weights = MODELS[0].astype(np.float64)
    outputs = x.flatten(1).numpy() @ weights[:640].reshape(10, 64).T + weights[640:]
    labels = y.numpy()
    found = [outputs[labels == k].sum(0) / max(sum(labels == k), 1) for k in range(10)]
    return np.stack(found)


def reported(make_context: MakeContext, last: int) -> list[bool]:
    """Let a client report in rounds 1 to ``last``; its data change in round 3."""
    rounds = range(1, last + 1)
    clients = [client_in(make_context, round, "evaluate") for round in rounds]
    told = [each.report({}, each.context.upcoming) for each in clients]
    assert all(each.keys() == {"changed"} for each in told)
    return [each["changed"] is True for each in told]


def asked(make_context: MakeContext) -> FloatArray:
    """Let a client answer at the step of round 3; return what it has told, (10, 10)."""
    question = {"prototypes": True}
    client = client_in(make_context, 3, "query")
    (told,), count, metrics = client.answer([MODELS[0]], question)
    assert (count, metrics) == (len(client.samples(3)[1]), {})
    assert told.dtype == np.float32
    return told.reshape(10, 10)


def test_a_change_is_told_once_and_earlier_data_are_those_from_before(make_context):
    assert client_in(make_context, 1, "query").earlier is None
    assert reported(make_context, 4) == [False, True, False, False]
    assert client_in(make_context, 2, "train").earlier is None
    # Those of round 2 were first seen in round 1.
    assert client_in(make_context, 3, "query").earlier == 1
    assert client_in(make_context, 9, "train").earlier == 1
    device = replace(make_context(9), settings=SETTINGS, folder=Path())
    assert FedDAAClient(device).earlier is None


def test_prototypes_are_the_mean_outputs_for_each_label(make_context):
    reported(make_context, 2)
    told = asked(make_context)
    client = client_in(make_context, 3, "train")
    assert told == pytest.approx(means(client, 3), abs=1e-5)
    pair = client.context.state.part("prototypes").at(3)["pair"]
    assert pair[1].reshape(10, 10) == pytest.approx(means(client, 1), abs=1e-5)
    x, y = client.samples(3)
    # A label without samples has zeros.
    client.samples = lambda _: (x[y > 2], y[y > 2])  # type: ignore[method-assign]
    found = client.prototypes(MODELS[0], 3).reshape(10, 10)
    assert found.any(axis=1).tolist() == [k > 2 for k in range(10)]
    client.samples = lambda _: (x[:0], y[:0])  # type: ignore[method-assign]
    assert not client.prototypes(MODELS[0], 3).any()


@pytest.mark.parametrize("drift", [False, True])
def test_earlier_data_are_trained_on_unless_the_drift_was_real(drift, make_context):
    reported(make_context, 2)
    asked(make_context)
    client = client_in(make_context, 4, "train")
    now, before = means(client, 3), means(client, 1)
    # One centre on its present prototypes; its earlier ones have another, or are near.
    far = before if drift else 9 + before + now
    centres = np.stack([now, far]).astype(np.float32)
    sent = [*MODELS, EVEN, centres.ravel()]
    old, new = client.samples(1), client.samples(4)
    x, y = client.training_samples(sent, STEP)
    wanted = [new] if drift else [old, new]
    assert torch.equal(x, torch.cat([each for each, _ in wanted]))
    assert torch.equal(y, torch.cat([each for _, each in wanted]))
    arrays, count, metrics = client.fit(sent, STEP)
    assert (count, metrics) == (len(y), {"kept": not drift})
    assert [len(each) for each in arrays] == [650, 650, 20]
    # Those who did not answer at this step cannot tell.
    for step in (2, 4):
        assert len(client.training_samples(sent, {"step": step})[1]) == len(new[1])


def test_a_step_forgets_the_mixture(make_context):
    shares = np.linspace(0.02, 0.18, 20, dtype=np.float32)
    sent = [*MODELS, shares, np.full(100, 0.1, np.float32)]
    trained = client_in(make_context, 2, "train")
    trained.fit(sent, STEP)
    mixture = trained.own(3, 2)
    assert trained.own(3, 3) is None
    start = client_in(make_context, 3, "train").starting_model(sent)
    assert start is MODELS[int(mixture.argmax())]
    asked(make_context)
    later = client_in(make_context, 3, "evaluate")
    assert later.own(3, 2) is None
    assert later.own(4, 2) is None
    # As it has none, its test is of the mixture that one E-step finds.
    found = later.make_test(sent).args[1]  # type: ignore[attr-defined]
    fedrc = FedRCClient(later.context).weigh(sent[:-1], None, later.samples(3))
    assert found == pytest.approx(fedrc.mean(1))
    assert client_in(make_context, 3, "train").starting_model(sent) is MODELS[0]
