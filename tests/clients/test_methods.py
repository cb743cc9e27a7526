"""What the clients of single methods train, keep and are served."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cfl_flower.client.context import ClientContext
from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.learning.testing import evaluate
from cfl_flower.learning.training import train
from cfl_flower.seeding import generator
from cfl_flower.types import Vector
from clients.ditto import DittoClient
from clients.flash import FlashClient
from clients.flexcfl import FlexCFLClient
from clients.local import BUDGET, LocalClient, LocalRoundsClient
from clients.profile import ProfileClient
from strategies.ditto import DittoSettings
from strategies.flash import FlashSettings
from strategies.flexcfl import FlexCFLSettings

EPOCHS = 4


def test_training_ends_where_an_epoch_gains_less_than_its_share(make_context):
    context = make_context(1)
    x, y = context.stream.view(2, 1).train()
    held = generator(0, "batches", 1, 2).permutation(len(y))[: len(y) // 5]

    def fit(epochs: int, stop: float) -> Vector:
        local = LocalTraining(epochs=epochs, learning_rate=0.02)
        context.settings = FlashSettings(local=local, stop=stop, validation=0.2)
        (trained,), _, _ = FlashClient(context).fit([context.initial()], {})
        return trained

    models = [fit(epochs, 0.0) for epochs in range(1, EPOCHS + 1)]
    losses = [evaluate(context.model.load(m), x[held], y[held])[0] for m in models]
    gains = -np.diff(losses)
    assert (gains > 0).all()
    ends = set[int]()
    # The gain of the n-th epoch is compared with gamma / n.
    numbers = np.arange(2, EPOCHS + 1)
    for stop in np.outer(gains * numbers, [0.99, 1.01]).ravel():
        few = np.flatnonzero(gains < stop / numbers)
        end = int(few[0]) + 1 if len(few) else EPOCHS - 1
        assert fit(EPOCHS, float(stop)).tobytes() == models[end].tobytes()
        ends.add(end)
    assert len(ends) > 1


def test_every_epoch_stays_near_the_received_model(make_context):
    context = make_context(1)
    x, y = context.stream.view(2, 1).train()
    # One batch an epoch: the same steps as those of one training with FedProx's term.
    local = LocalTraining(epochs=EPOCHS, batch_size=len(y), learning_rate=0.1, mu=5.0)
    context.settings = FlashSettings(local=local, validation=0.0)
    (found,), _, _ = FlashClient(context).fit([context.initial()], {})
    model = context.model.load(context.initial())
    train(model, x, y, local, np.random.default_rng(0))
    np.testing.assert_allclose(found, model.to_vector(), atol=1e-5)


def test_a_whole_budget_is_not_at_the_rate_of_its_round(make_context):
    found = []
    for schedule in ({}, {"warmup": 9}, {"schedule": "cosine"}):
        context = make_context(1)
        local = LocalTraining(**schedule)
        context.settings = replace(context.settings, local=local)
        LocalClient(context).fit([], {BUDGET: 3})
        found.append(own_model(context, 2).tobytes())
    assert len({*found}) == 1


def own_model(context: ClientContext, before: int) -> np.ndarray:
    return context.state.load(before)["model"]


def test_a_client_trains_anew_on_new_data_alone(make_context):
    asked = {BUDGET: 3}
    first = make_context(1)
    LocalClient(first).fit([], asked)
    again = make_context(2)
    arrays, count, _ = LocalClient(again).fit([], asked)
    assert (arrays, count) == ([], len(again.stream.view(2, 2).labels))
    assert again.model.passes == 0
    assert again.state.at(2) == {}
    changed = make_context(4)
    LocalClient(changed).fit([], asked)
    client = LocalClient(changed)
    longer = replace(client.local, epochs=3 * client.local.epochs)
    for each in (first, changed):
        expected, _ = LocalClient(each).train_from(each.initial(), longer)
        assert np.array_equal(own_model(each, before=each.round + 1), expected)


def test_by_rounds_a_client_goes_on_from_its_own_model(make_context):
    context = make_context(1)
    arrays, count, _ = LocalRoundsClient(context).fit([], {})
    assert arrays == []
    assert count == len(context.stream.view(2, 1).labels)
    later = make_context(4)
    LocalRoundsClient(later).fit([], {})
    expected, _ = LocalRoundsClient(later).train_from(own_model(context, before=4))
    assert np.array_equal(own_model(context, before=5), expected)


@pytest.mark.parametrize("count", [1, 6, 7])
def test_a_half_is_drawn_without_replacement_and_rounded_up(count, make_context):
    client = ProfileClient(make_context(1))
    samples = torch.arange(count).float(), torch.arange(count)
    x, y = client.draw(samples, 3, 2)
    assert torch.equal(x, y.float())
    halves = y.reshape(3, (count + 1) // 2).tolist()
    assert all(len(set(half)) == len(half) for half in halves)
    assert client.draw(samples, 0, 2) == samples
    again, other = (client.draw(samples, 3, round)[1] for round in (2, 3))
    assert torch.equal(again, y)
    assert count < 6 or not torch.equal(other, y)


LOCAL = LocalTraining(epochs=1)


def test_one_model_is_trained_near_the_other_as_it_was_received(make_context):
    # Of min f(theta) + lambda/2 |theta - omega|^2 and min f(omega).
    context = make_context(2)
    theta = context.initial() + np.float32(0.02)
    omega = context.initial()
    context.settings = DittoSettings(local=LOCAL, regularisation=0.7)
    context.state.save(1, {"model": theta})
    (sent,), _, _ = DittoClient(context).fit([omega], {})
    near = context.state.at(2)["model"]
    samples = context.stream.view(2, 2).train()
    expected = []
    for start, mu, purpose in ((theta, 0.7, "batches"), (omega, 0.0, "global")):
        model = context.model.load(start)
        local = LocalTraining(epochs=1, mu=mu)
        rng = generator(0, purpose, 2, 2)
        train(model, *samples, local, rng, anchor=torch.from_numpy(omega))
        expected.append(model.to_vector())
    assert np.array_equal(near, expected[0])
    assert np.array_equal(sent, expected[1])


def test_nobody_chooses_a_group_that_has_no_direction(make_context):
    context = make_context(1)
    context.settings = FlexCFLSettings(
        local=LocalTraining(epochs=1), pretraining=2, migration=False
    )
    client = FlexCFLClient(context)
    own = client.pretrain(1)
    nobody = np.zeros_like(own)
    assert client.choose([nobody, -own], 1) == 1
    assert client.choose([-own, nobody, own], 1) == 2
