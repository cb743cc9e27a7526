"""What clients that choose their cluster compute, and what they remember."""

from dataclasses import replace

import numpy as np
import pytest

from cfl_flower.client.context import ClientContext
from cfl_flower.clustering.similarity import dissimilarities, sketch
from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.models import Mclr, build_model
from cfl_flower.types import Vector
from clients.fesem import FeSEMClient
from clients.flexcfl import FlexCFLClient
from clients.ifca import IFCAClient
from strategies.flexcfl import FlexCFLSettings
from strategies.ifca import IFCASettings
from tests.clients.conftest import MakeContext

INITIAL = build_model(Mclr(), (1, 8, 8), 10, 0).to_vector()
LOCAL = LocalTraining(epochs=1)
FLEX = FlexCFLSettings(local=LOCAL, pretraining=5)
IFCA = IFCASettings(local=LOCAL, migration=True)
NAME = {"directions": "00000000000000d1"}


def context(make_context: MakeContext, round: int, settings: object) -> ClientContext:
    return replace(make_context(round), settings=settings)


def flex(make_context: MakeContext, round: int, **changes: object) -> FlexCFLClient:
    return FlexCFLClient(context(make_context, round, replace(FLEX, **changes)))  # type: ignore[arg-type]


def axes(count: int, length: int = 650) -> list[Vector]:
    return list(np.eye(count, length, dtype=np.float32))


def test_pretraining_is_some_mini_batches_from_the_initial_model(make_context):
    (update,), count, _ = flex(make_context, 0).answer([], {"pretrain": True})
    client = flex(make_context, 0)
    steps = replace(LOCAL, steps=5)
    trained, _ = client.train_from(INITIAL, steps, 1, "pretraining")
    assert np.array_equal(update, trained - INITIAL)
    assert count == len(client.data(1).labels)
    (sketched,), _, _ = flex(make_context, 0, sketch=32).answer([], {"pretrain": True})
    assert np.array_equal(sketched, sketch(update, 32, 0))


def test_newcomers_choose_the_direction_nearest_to_their_update(make_context):
    (update,), _, _ = flex(make_context, 0).answer([], {"pretrain": True})
    directions = [-update, update + 0.001, np.ones_like(update)]
    assert int(dissimilarities(update, directions).argmin()) == 1
    _, _, metrics = flex(make_context, 0).answer(directions, {"choose": True, **NAME})
    assert metrics == {"cluster": 1}


def test_migration_needs_a_shift_and_nothing_from_the_server(stream, make_context):
    # The data change in round 3; the hello looks at round 1.
    client = flex(make_context, 0)
    client.answer([], {})
    client.answer(axes(3), {"choose": True, **NAME})
    asked = {"test": False, "chosen": 0, **NAME}
    assert flex(make_context, 1).evaluate([], asked)[2] == {}
    assert "cluster" in flex(make_context, 2).evaluate([], asked)[2]
    # The choice of round 2 was lost on the way: it is made again.
    assert "cluster" in flex(make_context, 3).evaluate([], asked)[2]
    assert flex(make_context, 3).evaluate([], {**asked, "chosen": 2})[2] == {}
    assert stream.timeline.rounds == [3]


def test_lost_directions_are_reported_and_kept_when_received_again(make_context):
    flex(make_context, 0).answer([], {})
    asked = {"test": False, "chosen": 0, **NAME}
    assert flex(make_context, 2).evaluate([], asked)[2] == {"lost": True}
    assert "cluster" in flex(make_context, 2).evaluate(axes(3), asked)[2]
    assert "cluster" in flex(make_context, 3).evaluate([], asked)[2]


def test_directions_are_kept_once_for_all_clients_of_a_machine(make_context):
    one = make_context(0)
    two = replace(one, client=3)
    for each in (one, two):
        client = FlexCFLClient(replace(each, settings=FLEX))
        client.answer(axes(3), {"choose": True, **NAME})
    assert sorted(one.state.kept("00000000000000d1")) == ["0", "1", "2"]
    static = replace(FLEX, migration=False)
    other = replace(make_context(0, folder="static"), settings=static)
    FlexCFLClient(other).answer(axes(3), {"choose": True, **NAME})
    assert other.state.kept("00000000000000d1") == {}


def test_ifca_chooses_by_the_loss_on_its_training_data(make_context):
    client = IFCAClient(context(make_context, 1, IFCA))
    trained, _ = client.train_from(INITIAL)
    (model,), _, metrics = client.fit([INITIAL, trained, -trained], {})
    assert metrics == {"cluster": 1}
    assert np.array_equal(model, client.train_from(trained)[0])
    same = client.choose([trained, trained.copy()], 1)
    assert same == 0


def test_fesem_compares_its_last_trained_model(make_context):
    client = FeSEMClient(context(make_context, 1, IFCA))
    far = INITIAL + 5
    assert client.choose([far, INITIAL + 1], 1) == 1
    client.fit([far], {})
    assert client.choose([far, INITIAL + 1], 2) == 0


@pytest.mark.parametrize("kind", [IFCAClient, FlexCFLClient])
def test_clients_without_data_keep_their_cluster(kind, make_context, monkeypatch):
    settings = FLEX if kind is FlexCFLClient else IFCA
    client = kind(context(make_context, 1, settings))
    view = client.data(1)
    empty = replace(view, train_indices=view.train_indices[:0])
    monkeypatch.setattr(client, "data", lambda round: empty)
    asked = {"test": False, "chosen": 0, **NAME}
    assert client.report(asked, 2, axes(3)) == {}
    received = axes(3) if kind is FlexCFLClient else [INITIAL] * 3
    assert client.answer(received, {"choose": True, **NAME})[1:] == (0, {"cluster": 0})


@pytest.mark.parametrize(("times", "shifted"), [(1.22, False), (0.82, True)])
def test_a_shift_is_a_share_of_the_last_samples(times, shifted, stream, make_context):
    # A change of a fifth of what there was, not of what there is.
    client = IFCAClient(context(make_context, 1, IFCA))
    counts = np.bincount(stream.view(2, 2).labels, minlength=10)
    client.context.state.part("choice").save(1, {"counts": times * counts})
    asked = {"test": False, "chosen": 1}
    # Without a test, nothing comes before the models to choose among.
    found = client.evaluate([INITIAL + 5, INITIAL], asked)[2]
    assert found == ({"cluster": 1} if shifted else {})
