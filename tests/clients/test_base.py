from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from cfl_flower.client.requests import EvaluateRequest
from cfl_flower.clustering.representations import digest, label_histogram
from cfl_flower.data.worlds.stream import Stream
from cfl_flower.engine.method import StrategySettings
from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.learning.testing import logits
from cfl_flower.learning.training import train
from cfl_flower.models import FlatModel, Mclr, build_model
from cfl_flower.seeding import generator
from clients.base import ClusteredClient
from clients.pfedme import PFedMeClient
from strategies.fielding import FieldingSettings
from strategies.fielding.report_noise import LaplaceNoise, NoNoise
from strategies.pfedme import PFedMeSettings

ASK = {"representation": "label_histogram"}
INITIAL = build_model(Mclr(), (1, 8, 8), 10, 0).to_vector()


def histogram(stream: Stream, round: int) -> np.ndarray:
    return label_histogram(stream.view(2, round).labels, 10)


def test_losses_at_the_start_are_two_kinds_of_means(stream, make_context):
    client = ClusteredClient(make_context(1))
    assert client.start_loss(INITIAL, {"start_loss": False}) == {}
    x, y = stream.view(2, 1).train()
    logits = client.context.model.load(INITIAL).module(x).detach()
    losses = torch.nn.functional.cross_entropy(logits, y, reduction="none").numpy()
    expected = {"start_loss": losses.mean(), "start_rms": (losses**2).mean() ** 0.5}
    found = client.start_loss(INITIAL, {"start_loss": True})
    assert found == pytest.approx(expected, rel=1e-5)
    assert expected["start_rms"] > 1.001 * expected["start_loss"]


def test_client_that_is_not_tested_still_reports(stream, make_context):
    config = {**ASK, "held": "unknown", "test": False}
    loss, count, metrics = ClusteredClient(make_context(1)).evaluate([], config)
    assert (loss, count) == (0.0, 0)
    samples = len(stream.view(2, 2).labels)
    report = {"representation": histogram(stream, 2).tobytes(), "samples": samples}
    assert metrics == report


@pytest.mark.parametrize("noise", [NoNoise(), LaplaceNoise(epsilon=0.05)])
def test_change_within_the_tolerance_is_no_drift(noise, stream, make_context):
    # The change is that of the data, whatever noise hides them from the server.
    settings = FieldingSettings(privacy=noise)
    first, after = histogram(stream, 2), histogram(stream, 3)
    change = float(abs(first - after).sum())
    for factor, reports in ((1.01, False), (0.99, True)):
        ask = {**ASK, "tolerance": factor * change}
        early, late = (
            replace(make_context(round, str(factor)), settings=settings)
            for round in (0, 2)
        )
        reported = ClusteredClient(early).answer([], ask)[2]["representation"]
        held = np.frombuffer(reported, np.float32)  # type: ignore[arg-type]
        gap = float(abs(held - after).sum())
        assert gap < 0.99 * change if noise.on else gap == change
        config = {**ask, "held": digest(held)}
        _, _, metrics = ClusteredClient(late).evaluate([INITIAL], config)
        assert ("representation" in metrics) is reports


def test_report_that_the_server_does_not_hold_is_sent_again(stream, make_context):
    ask = {**ASK, "tolerance": 0.5}
    ClusteredClient(make_context(0)).answer([], ask)
    config = {**ask, "held": digest(histogram(stream, 1))}
    for round in (2, 3):
        _, _, metrics = ClusteredClient(make_context(round)).evaluate([INITIAL], config)
        assert "representation" in metrics


def test_flipping_client_trains_on_other_labels_and_is_tested_on_its_own(make_context):
    honest = ClusteredClient(make_context(1))
    flipping = ClusteredClient(replace(make_context(1), attack="flip"))
    models = [client.fit([INITIAL], {})[0][0] for client in (honest, flipping)]
    assert not np.array_equal(*models)
    tests = [client.evaluate([INITIAL], {}) for client in (honest, flipping)]
    assert tests[0] == tests[1]


def test_averaged_statistics_travel_with_the_model(make_context):
    layers = nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 10)
    normalised = FlatModel(nn.Sequential(*layers))
    received, weights = normalised.to_vector(), len(normalised.weights)
    settings = StrategySettings(local=LocalTraining(epochs=1))
    context = replace(make_context(1), model=normalised, settings=settings)
    (trained,), _, _ = ClusteredClient(context).fit([received], {})
    assert (trained[weights:] != received[weights:]).sum() > 100
    assert context.state.load(9) == {}


# What single methods do


def test_inner_steps_of_pfedme_are_counted_as_work(make_context):
    plain, personal = make_context(1), make_context(1)
    settings = PFedMeSettings(local=plain.settings.local, inner_steps=4)
    personal = replace(personal, settings=settings)
    ClusteredClient(plain).fit([INITIAL], {})
    PFedMeClient(personal).fit([INITIAL], {})
    assert personal.model.passes == 4 * plain.model.passes > 0


def test_label_shares_are_those_of_the_round_that_ends(make_context):
    context = make_context(2)
    client = ClusteredClient(context)
    assert client.label_shift() is None
    context.settings = replace(context.settings, label_shares=True)
    counts = np.bincount(context.stream.view(2, 2).labels, minlength=10)
    assert counts.min() == 0, "a share of none is smoothed"
    # (n_y + 1) / (n + L)
    expected = np.log((counts + 1) / (counts.sum() + 10))
    shift = client.label_shift()
    assert shift.dtype == np.float32
    np.testing.assert_allclose(shift, expected, rtol=1e-6)
    later = replace(context, round=3)
    assert not np.array_equal(ClusteredClient(later).label_shift(), shift)


def test_a_test_by_label_shares_is_of_the_shifted_outputs(make_context):
    context = make_context(2)
    context.settings = replace(context.settings, label_shares=True)
    client = ClusteredClient(context)
    view = context.stream.view(2, 2)
    loss, correct = client.make_test([context.initial()])(view)
    x, y = view.test()
    shift = client.label_shift()
    scores = logits(client.load(context.initial()), x) + torch.tensor(shift)
    assert correct == int((scores.argmax(1) == y).sum())
    assert loss == pytest.approx(float(cross_entropy(scores, y)), rel=1e-6)
    plain = ClusteredClient(make_context(2)).make_test([context.initial()])
    assert loss < plain(view)[0]


@pytest.mark.parametrize("ahead", [False, True])
def test_inputs_choose_a_model_and_labels_only_score_it(ahead, make_context):
    context = make_context(2)
    client = ClusteredClient(context)
    trained, _ = client.train_from(client.train_from(context.initial())[0])
    flat = np.zeros_like(trained)
    # One label for all says nothing, however sure it is.
    sure = flat.copy()
    sure[-1] = 99
    # A model that is surer of each, of as many labels, tells more.
    among = [flat, sure, trained, 2 * trained]
    asked = EvaluateRequest(True, ahead=ahead, candidates=3).to_config()
    passes = context.model.passes
    found = client.test_unlabelled(among[:3], asked)
    assert context.model.passes == passes
    x, y = context.stream.view(2, 3 if ahead else 2).test()
    right = int((logits(client.load(trained), x).argmax(1) == y).sum())
    assert found == {"unlabelled_correct": right, "unlabelled_tested": len(y)}
    assert client.choose_unlabelled(among, x) is among[3]


def test_fine_tuning_is_on_the_data_of_the_round_that_ends(make_context):
    # From round 3 on the client has other data.
    context = make_context(2)
    context.settings = replace(context.settings, fine_tuning=2, fine_tuning_rate=0.05)
    found = ClusteredClient(context).fine_tuned(context.initial())
    model = context.model.load(context.initial())
    local = LocalTraining(epochs=2, learning_rate=0.05)
    samples = context.stream.view(2, 2).train()
    train(model, *samples, local, generator(0, "fine-tuning", 2, 2))
    assert found.tobytes() == model.to_vector().tobytes()
