from __future__ import annotations

from dataclasses import replace

import numpy as np

from cfl_flower.client.context import ClientContext
from cfl_flower.client.requests import BudgetRequest
from clients.local import LocalClient, LocalRoundsClient
from tests.clients.conftest import MakeContext
from tests.conftest import Runner


def own_model(context: ClientContext, before: int) -> np.ndarray:
    return context.state.load(before)["model"]


def test_a_client_trains_anew_on_new_data_alone(make_context: MakeContext) -> None:
    asked = BudgetRequest(3).to_config()
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


def test_by_rounds_a_client_goes_on_from_its_own_model(
    make_context: MakeContext,
) -> None:
    context = make_context(1)
    arrays, count, _ = LocalRoundsClient(context).fit([], {})
    assert arrays == []
    assert count == len(context.stream.view(2, 1).labels)
    later = make_context(4)
    LocalRoundsClient(later).fit([], {})
    expected, _ = LocalRoundsClient(later).train_from(own_model(context, before=4))
    assert np.array_equal(own_model(context, before=5), expected)


def test_clients_train_for_a_whole_run_at_once_when_their_data_are_new(
    run_small: Runner,
) -> None:
    half = ["drift=rotate", "drift.rounds=[3]", "drift.fraction=0.5"]
    run = run_small("strategy=local", *half, "strategy.local.epochs=5")
    # Half of the clients take part in each of four rounds of five epochs.
    epochs = 2 * 5
    found = [row["client_epochs"] for row in run.rounds]
    assert found == [12 * epochs, 0, 6 * epochs, 0]
