from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from cfl_flower.client.drift_report import DriftReport
from cfl_flower.client_app import app as client_app
from cfl_flower.communication.records import pack_answers, unpack_answers
from cfl_flower.types import ClientId, Result
from simulations.engines.inprocess import InProcessGrid
from strategies.fielding import Fielding
from strategies.fielding.method import cluster_clients
from strategies.fielding.reclustering import DriftEvent
from tests.conftest import app_of, open_method

# The strategy on a fleet, without training


def strategy(tmp_path: Path, *overrides: str) -> Fielding:
    found: Fielding = open_method(tmp_path, "clients=8", "participants=4", *overrides)
    return found


def report(client: int, *labels: int, samples: Any = 50) -> Result:
    histogram = np.bincount(labels, minlength=10).astype(np.float32) / len(labels)
    metrics = {"representation": histogram.tobytes(), "samples": samples}
    return Result(client, 10, metrics=metrics, report=DriftReport(histogram, samples))


def two_groups(tmp_path: Path, *overrides: str) -> Fielding:
    """Return Fielding with clients 0..3 on labels 0 and 1, 4..7 on labels 2 and 3."""
    fielding = strategy(tmp_path, *overrides)
    first = [report(c, 0, 0, 0, 1) for c in range(4)]
    fielding.welcome(1, first + [report(c, 2, 2, 2, 3) for c in range(4, 8)])
    fielding.state.models = [np.float32([1, 1]), np.float32([3, 3])]
    return fielding


def test_the_first_clients_are_clustered_from_one_common_model(tmp_path):
    fielding = strategy(tmp_path)
    (initial,) = fielding.state.models
    fielding.welcome(1, [report(c, c % 2) for c in range(8)])
    assert fielding.state.clusters.tolist() == [0, 1] * 4
    assert all(np.array_equal(model, initial) for model in fielding.state.models)
    assert fielding.state.centres[1].tolist() == [0, 1] + [0] * 8


def test_one_drifted_client_moves_without_reclustering(tmp_path):
    fielding = two_groups(tmp_path)
    fielding.absorb_evaluate(1, [report(0, 2, 2, 2, 3)])
    record, state = fielding.run.record, fielding.state
    assert (record.drifted, record.moved, record.reclustered) == (1, 1, False)
    assert state.clusters.tolist() == [1, 0, 0, 0, 1, 1, 1, 1]
    assert state.models[0].tolist() == [1, 1]
    # The centres are those of the members of now.
    assert state.centres[1, 2:4].tolist() == [0.75, 0.25]


def test_a_shift_reclusters_and_new_models_are_means_over_members(tmp_path):
    fielding = two_groups(tmp_path)
    # Half of each group gets labels that no client had.
    reports = [report(c, 8, 8, 8, 9) for c in (0, 1, 4)]
    fielding.absorb_evaluate(1, reports)
    record, state = fielding.run.record, fielding.state
    assert (record.drifted, record.reclustered) == (3, True)
    assert state.clusters.tolist() == [0, 0, 1, 1, 0, 2, 2, 2]
    # The new group is nearest to cluster 0 (lowest id on a tie), so client 4 moved
    # there first: its previous model is cluster 0's.
    assert [model.tolist() for model in state.models] == [[1, 1], [1, 1], [3, 3]]


def test_delta_grows_with_wide_events_in_a_row_only(tmp_path):
    fielding = two_groups(tmp_path, "strategy/trigger=pairwise")
    state, trigger = fielding.state, fielding.settings.trigger
    narrow, wide = state.representations.copy(), state.representations.copy()
    wide[0] = wide[4]
    found = []
    for points in (wide, narrow, wide, wide, narrow):
        state.representations = points
        fired = trigger.fires(state, DriftEvent(state.centres, 0.0, "l1", ()))
        found.append((fired, state.consecutive, round(state.delta, 3)))
    # From 0.1: the second in a row doubles it, any other takes 0.1, down to 0.1.
    expected = [(True, 1, 0.1), (False, 0, 0.1), (True, 1, 0.1)]
    assert found == [*expected, (True, 2, 0.2), (False, 0, 0.1)]


def test_slow_drift_does_not_add_up(tmp_path):
    fielding = two_groups(tmp_path, "strategy.threshold=0.6")
    for labels in ((0, 0, 0, 5), (0, 0, 5, 5), (0, 5, 5, 5)):
        fielding.absorb_evaluate(1, [report(c, *labels) for c in range(4)])
        assert not fielding.run.record.reclustered


def test_newcomers_can_trigger_a_reclustering_of_their_own(tmp_path):
    fielding = two_groups(tmp_path)
    fielding.welcome(2, [report(c, 8, 8, 8, 9) for c in range(8, 12)])
    assert fielding.run.record.reclustered
    assert fielding.state.clusters.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    # A quiet end of the round does not hide it, nor do moves that change little.
    fielding.absorb_evaluate(2, [])
    assert fielding.run.record.reclustered
    assert fielding.run.record.moved == 0
    fielding.absorb_evaluate(2, [report(0, 2, 2, 2, 3)])
    assert fielding.run.record.reclustered
    assert fielding.run.record.moved == 1


def alike(clients: int) -> list[Result]:
    """Return reports of clients that draw 50 labels each from one distribution."""
    draws = np.random.default_rng(0).integers(0, 4, (clients, 50))
    return [report(c, *labels) for c, labels in enumerate(draws)]


@pytest.mark.parametrize(("significance", "one"), [(0.001, True), (0.0, False)])
def test_clients_that_differ_by_chance_are_one_cluster(significance, one, tmp_path):
    fielding = strategy(tmp_path, f"strategy.significance={significance}")
    fielding.welcome(1, alike(8))
    assert (len(fielding.state.models) == 1) is one


@pytest.mark.parametrize("kind", ["embedding", "gradient"])
@pytest.mark.parametrize("far", [(), (3,), (3, 9), (3, 9, 10)])
def test_reports_far_from_all_do_not_hide_the_clusters_of_others(kind, far, tmp_path):
    fielding = strategy(
        tmp_path, f"strategy/representation={kind}", "model=mlp", "clients=20"
    )
    rng = np.random.default_rng(0)
    group = np.arange(20) % 4
    points = np.eye(4, 32)[group] + 0.01 * rng.normal(size=(20, 32))
    for place, client in enumerate(far):
        # The farther hides the nearer.
        points[client] = 3.0 ** (place + 1) * rng.normal(size=32)
    fielding.state.representations = points
    fielding.state.counts = np.full(20, 50)
    found = cluster_clients(fielding.state, fielding.settings, rng)
    honest = np.setdiff1d(np.arange(20), far)
    assert len(np.unique(found)) == 4 + len(far)
    assert np.array_equal(
        found[honest][:, None] == found[honest], group[honest][:, None] == group[honest]
    )
    assert all(np.bincount(found)[found[client]] == 1 for client in far)


def test_an_empty_cluster_takes_no_part_in_theta_and_can_be_joined_again(tmp_path):
    fielding = two_groups(tmp_path, "strategy.threshold=9")
    fielding.absorb_evaluate(1, [report(c, 2, 2, 2, 3) for c in range(4)])
    assert fielding.state.sizes.tolist() == [0, 8]
    assert not fielding.run.record.reclustered
    fielding.absorb_evaluate(2, [report(5, 0, 0, 0, 1)])
    assert fielding.state.clusters[5] == 0
    assert fielding.state.models[0].tolist() == [1, 1]


def test_a_threshold_is_tried_on_rounds_with_drift_only(tmp_path):
    fielding = two_groups(tmp_path, "strategy/threshold_learning=trials")
    fielding.run.record.accuracy = 0.5
    fielding.absorb_evaluate(1, [])
    assert fielding.state.trials.before is None
    fielding.absorb_evaluate(2, [report(0, 2, 2, 2, 3)])
    assert fielding.state.trials.before == 0.5


# End to end, in process


def test_reports_of_participants_alone_leave_the_others_where_they_are(run_small):
    run = run_small("participants=3", "strategy.reporters=participants")
    drifted = [row["drifted"] for row in run.rounds]
    # Who is not heard at the drift is heard when it trains.
    assert drifted[:2] == [0, 3]
    assert 0 < sum(drifted[2:]) <= 6


def test_clients_are_asked_although_they_are_not_tested(run_small):
    run = run_small("system.evaluate_every=4")
    assert [row["accuracy"] is None for row in run.rounds] == [True] * 3 + [False]
    assert [row["drifted"] for row in run.rounds] == [0, 12, 0, 0]


def spoiling_app() -> ClientApp:
    """Return the client app, which cuts client 0's first report of a drift."""
    spoilt: list[ClientId] = []

    def call(message: Message, context: Context) -> Message:
        reply = client_app(message, context)
        if message.metadata.message_type != "evaluate":
            return reply
        answers = list(unpack_answers(reply.content))
        for answer in answers:
            if answer.client == 0 and "representation" in answer.metrics and not spoilt:
                answer.metrics = {**answer.metrics, "representation": b"123"}
                spoilt.append(answer.client)
        return Message(pack_answers(answers), reply_to=message)

    return app_of(call)


def test_a_malformed_report_costs_neither_the_test_nor_other_reports(run_small):
    whole = run_small(folder="whole")
    run = run_small(grid=InProcessGrid([{}], spoiling_app()))
    failures = [row["failures"] for row in run.rounds]
    assert [len(of_round) for of_round in failures] == [0, 1, 0, 0]
    (failure,) = failures[1]
    assert (failure["client"], failure["reason"]) == (0, "representation")
    # It is asked again, because the server does not hold what it reported.
    assert [row["drifted"] for row in run.rounds] == [0, 11, 1, 0]
    assert run.rounds[1]["accuracy"] == whole.rounds[1]["accuracy"]
    assert run.rounds[-1]["ari"] == 1
