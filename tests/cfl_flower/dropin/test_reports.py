"""What the mods report, of whatever types and over whatever a node lost."""

import json
from itertools import permutations
from typing import Any

import cfl_flower.strategies as plain
import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from cfl_flower.mods import _drift_report, embedding, label_histogram
from tests.cfl_flower.dropin.apps import WEIGHT, make_app, reporting, start
from tests.conftest import sample


@pytest.mark.parametrize(
    ("kind", "low"),
    [
        ("float16", 5.0),
        ("float16", 1000.0),
        ("float32", 2.0**24),
        ("float64", 1e8),
        ("int8", 100),
        ("uint8", 200),
        ("int32", 2**30),
        ("int64", 2**40),
    ],
)
def test_the_mean_of_many_rows_is_that_of_one(kind, low):
    def embed(arrays: Any, context: Context) -> Any:
        odd = int(context.node_config["partition-id"]) % 2
        return np.full((9000, 3), low * (1 + odd / 5)).astype(kind)

    app = reporting(embedding(embed))
    found = start(app, plain.Fielding, representation="embedding")
    assert list(found.clusters.values()) == [0, 1, 0, 1]
    exact = [np.full(3, low * share).astype(kind) for share in (1.0, 1.2)]
    np.testing.assert_allclose(found.state.centres, exact, rtol=1e-6)


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "int64"])
def test_label_counts_hold_in_small_types(kind):
    def labels(context: Context) -> Any:
        odd = int(context.node_config["partition-id"]) % 2
        return np.full(9000, odd * 100).astype(kind)

    found = start(reporting(label_histogram(labels, 101)), plain.Fielding)
    assert found.state.centres.max(axis=1).tolist() == [1.0, 1.0]


LOSSES: list[Any] = [{1}, {2}, {3}, {2, 4}, {1, 2, 3, 4, 5, 6}]
"""The rounds at whose beginning a node loses its state."""


@pytest.mark.parametrize("lost", LOSSES)
@pytest.mark.parametrize("drift", sample([3, 4, 5, 6], [4]))
@pytest.mark.parametrize("evaluated", [1.0, 0.0])
@pytest.mark.parametrize("kind", ["embedding", "label_histogram"])
def test_a_node_that_lost_its_state_goes_on(kind, evaluated, drift, lost):
    now = {"round": 0}
    states: dict[int, RecordDict] = {}

    def group(context: Context) -> int:
        moved = context.node_id == 1002 and now["round"] >= drift
        return (context.node_id + moved) % 2

    def embed(arrays: Any, context: Context) -> Any:
        assert not arrays[WEIGHT].numpy().any()
        return np.full((9, 3), 1.0 + group(context))

    mods = {
        "embedding": embedding(embed),
        "label_histogram": label_histogram(lambda each: [group(each)] * 9, 2),
    }
    app = reporting(mods[kind])

    def forgetful(message: Message, context: Context) -> Message:
        upcoming = message.content["config"]["server-round"]
        if upcoming > now["round"]:
            now["round"] = upcoming
            if upcoming in lost:
                states.pop(1002, None)
        context.state = states.setdefault(context.node_id, RecordDict())
        return app(message, context)

    options = {"representation": kind, "fraction_evaluate": evaluated}
    found = start(forgetful, plain.Fielding, 8, min_evaluate_nodes=0, **options)
    assert found.clusters[1002] == found.clusters[1001] != found.clusters[1000]
    assert not any(found.failures.values())


FAILING: dict[str, Any] = {
    "raises": None,
    "no samples": MetricRecord({"num-examples": 0}),
    "no number": MetricRecord({"num-examples": float("nan")}),
    "text": ConfigRecord({"num-examples": "7"}),
    "nothing": MetricRecord(),
}


@pytest.mark.parametrize("kind", FAILING)
@pytest.mark.parametrize("mod", ["embedding", "label_histogram"])
def test_who_cannot_test_still_reports(kind, mod, caplog):
    """Node 1002 changes its group from round 3 on, and all its tests fail."""
    now = {"round": 0}

    def group(context: Context) -> int:
        return (context.node_id + (context.node_id == 1002 and now["round"] >= 3)) % 2

    mods = {
        "embedding": embedding(lambda a, each: np.full((9, 3), 1.0 + group(each))),
        "label_histogram": label_histogram(lambda each: [group(each)] * 9, 2),
    }
    app = ClientApp(mods=[mods[mod]])
    plain_app = make_app()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        now["round"] = message.content["config"]["server-round"]
        return plain_app(message, context)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        if context.node_id != 1002:
            return plain_app(message, context)
        if FAILING[kind] is None:
            raise KeyError("no test set")
        return Message(RecordDict({"metrics": FAILING[kind]}), reply_to=message)

    found = start(app, plain.Fielding, 6, representation=mod)
    assert found.clusters[1002] == found.clusters[1001] != found.clusters[1000]
    failures = [each for round in found.failures.values() for each in round]
    assert {(each.client, each.phase) for each in failures} == {(1002, "evaluate")}
    # Those of each round, whether or not there was a report.
    assert len(failures) == 6
    assert ("KeyError: 'no test set'" in failures[3].detail) is (kind == "raises")


@pytest.mark.parametrize("odd", [np.nan, np.inf])
@pytest.mark.parametrize("finite", [[0.2], [0.2, 0.5], [0.2, 0.2]])
def test_a_loss_that_is_no_number_is_never_chosen(finite, odd):
    for losses in permutations([*finite, odd, odd]):
        context = Context(1, 1000, {}, RecordDict(), {})
        asked = {"assigned": json.dumps([[1, 0]]), "delta": 9.0, "round": 2}
        found = _drift_report(np.array(losses), 5, "", asked, context)
        assert losses[found["chosen"]] == 0.2
        table = np.frombuffer(found["losses"], np.float32)
        assert np.isfinite(table).all()
