from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from cfl_flower.client_app import app as client_app
from cfl_flower.inprocess import InProcessGrid
from cfl_flower.records import pack_answers, unpack_answers
from cfl_flower.types import Result
from strategies.choosing import discrepancies

Runner = Callable[..., Any]


def test_discrepancy_is_the_mean_distance_to_the_clusters_model() -> None:
    models = [np.float32([0, 0]), np.float32([9, 9]), np.float32([1, 1])]
    arrays = [np.float32([3, 4]), np.float32([0, 1]), np.float32([1, 3])]
    results = [Result(i, 1, [array]) for i, array in enumerate(arrays)]
    found = discrepancies(results, np.array([0, 0, 2]), models)
    assert found == [pytest.approx(3), None, pytest.approx(2)]


def lying_app(cluster: object) -> ClientApp:
    """Return the client app, in which client 3 claims to have chosen something."""
    app = ClientApp()

    def call(message: Message, context: Context) -> Message:
        reply = client_app(message, context)
        if "answers" not in reply.content.config_records:
            return reply
        answers = unpack_answers(reply.content)
        for answer in answers:
            if answer.client == 3 and "cluster" in answer.metrics:
                answer.metrics["cluster"] = cluster  # type: ignore[assignment]
        return Message(pack_answers(answers), reply_to=message)

    app.query("hello")(call)
    app.query()(call)
    app.train()(call)
    app.evaluate()(call)
    return app


@pytest.mark.parametrize("cluster", [7, -1, "first", True, 1.0])
@pytest.mark.parametrize("strategy", ["ifca", "flexcfl"])
def test_a_choice_that_is_none_costs_only_that_client(
    strategy: str, cluster: object, run_small: Runner
) -> None:
    grid = InProcessGrid([{}], lying_app(cluster))
    options = [f"strategy={strategy}", "clusters=3", "rounds=2"]
    options += ["strategy.alpha=1"] if strategy == "flexcfl" else []
    run = run_small(*options, grid=grid)
    refused = [f for f in run.rounds[0]["failures"] if f["client"] == 3]
    tested = {row["client"] for row in run.clients}
    # Unless FlexCFL grouped it first, it is asked again, and never served.
    if refused:
        assert {failure["reason"] for failure in refused} == {"representation"}
        assert 3 not in tested
    assert len(tested) >= 11
    assert strategy == "flexcfl" or refused
