"""A client that has all clients clustered anew in every round is not heard for long."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cfl_flower.communication.results import Results
from cfl_flower.engine.delivery import Delivery, reported_length, reports_news
from cfl_flower.engine.stages.stage import MOST, REGAINED
from cfl_flower.privacy.clipping import FAR
from cfl_flower.types import CHANGED, Config, Metrics, Result, Vector
from clients.feddaa import FedDAAClient
from clients.fielding import FieldingClient

LIAR = 2
ROUNDS = 16


class Restless(FieldingClient):
    """Client `LIAR` says in every round that all of its samples have another label."""

    def represent(self, config: Config, server_round: int) -> Vector:
        """Return a distribution that no other client has."""
        honest = super().represent(config, server_round)
        if self.context.client != LIAR:
            return honest
        forged = np.zeros_like(honest)
        forged[server_round % len(forged)] = 1
        return forged


class Jumpy(FedDAAClient):
    """Client `LIAR` says in every round that its data change."""

    def report(self, config: Config, server_round: int, *more: Any) -> Metrics:
        """Return that they do."""
        honest = super().report(config, server_round, *more)
        return honest | ({CHANGED: True} if self.context.client == LIAR else {})


CLIENT = f"strategy.client={__name__}.Restless"
OPTIONS = ["strategy=fielding", f"rounds={ROUNDS}", "drift=none", "partition.groups=3"]


JUMPY = ["strategy=feddaa", f"strategy.client={__name__}.Jumpy"]


@pytest.mark.parametrize(
    "own",
    [
        [CLIENT, "strategy.threshold=0.1"],
        [CLIENT, "strategy/trigger=pairwise"],
        JUMPY,
    ],
)
def test_reports_that_recluster_round_after_round_are_left_out(own, run_small):
    run = run_small(*OPTIONS, *own)
    led = sum(bool(row["reclustered"]) for row in run.rounds)
    assert MOST <= led <= MOST + REGAINED * ROUNDS
    resting = [row["resting"] for row in run.rounds if "resting" in row]
    assert all(each == [LIAR] for each in resting)
    assert len(resting) >= ROUNDS / 2
    # It is tested like any other, and comes back when its budget has grown.
    tested = {row["client"] for row in run.clients if row["round"] == ROUNDS}
    assert LIAR in tested
    last = max(row["round"] for row in run.rounds if row["reclustered"])
    assert last > MOST + 1


def test_who_drifts_with_most_others_spends_nothing(run_small):
    run = run_small("strategy=fielding", "drift.rounds=[2,3,4,5,6]", "rounds=7")
    assert not any("resting" in row for row in run.rounds)


HUGE = [f"faults.attackers=[{LIAR}]", "faults.attack=embedding", "drift=none"]


@pytest.mark.parametrize(
    "options",
    [
        ["strategy=fielding"],
        ["strategy=fielding", "strategy/representation=embedding"],
        ["strategy=fielding", "strategy/representation=gradient"],
        ["strategy=fielding", "strategy/representation=combined"],
        ["strategy=stocfl", "strategy.refresh=on_drift"],
        ["strategy=flexcfl", "strategy.alpha=4"],
    ],
)
def test_a_huge_report_is_refused_and_nobody_is_clustered_anew(options, run_small):
    run = run_small(*options, *HUGE)
    assert {failure["client"] for failure in run.failures} <= {LIAR}
    assert not any(row.get("reclustered") for row in run.rounds)
    assert all(np.isfinite(model).all() for model in run.state.models)
    assert run.rounds[-1]["accuracy_honest"] > 0.5


def test_a_refused_report_of_a_test_leaves_the_test(run_small):
    run = run_small("strategy=fielding", "faults.attackers=[2]", "faults.attack=random")
    assert not run.failures
    tested = {row["client"] for row in run.clients if row["round"] == 4}
    assert LIAR in tested


@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_distributions_are_of_one_length_however_narrow(classes):
    narrow = np.eye(classes, dtype=np.float32)[0]
    even = np.full(classes, 1 / classes, np.float32)
    for each in (narrow, even):
        assert reported_length("query", Result(1, 3, [each])) == pytest.approx(1)


@pytest.mark.parametrize(
    ("others", "length", "kept"),
    [(4, FAR, True), (4, 1.01 * FAR, False), (2, 1e12, True)],
)
def test_only_what_is_much_longer_than_the_median_is_refused(others, length, kept):
    # Of three reports, no length is typical yet.
    lengths = [1.0] * others + [length]
    told = [{"representation": np.float32([each]).tobytes()} for each in lengths]
    results = Results(Result(n, 3, metrics=each) for n, each in enumerate(told))
    failures: list[str] = []
    context: Any = SimpleNamespace(
        state=SimpleNamespace(clients=range(len(told)), typical_report=0.0),
        method=SimpleNamespace(read_result=None),
        record=SimpleNamespace(failures=failures),
        fleet=SimpleNamespace(fail=lambda client, phase, error: error.detail),
    )
    found = Delivery(context).without_far_reports("evaluate", results)
    # The test itself counts in any case.
    assert [reports_news(each) for each in found] == [True] * others + [kept]
    assert failures == [] if kept else "is the median of clients" in failures[0]


@pytest.mark.parametrize("changed", [1, 4, 5, 6, 7, 12])
def test_what_is_typical_changes_with_a_majority_alone(changed, undisturbed):
    options = ["strategy=fielding", "strategy/representation=gradient", "rounds=3"]
    before = undisturbed(*options, "drift=none").state.typical_report
    ids = ",".join(map(str, range(changed)))
    run = undisturbed(*options, f"drift.ids=[{ids}]")
    assert [row["drifted"] for row in run.rounds] == [0, changed, 0]
    # Of twelve clients; other data have gradients of other lengths.
    assert (run.state.typical_report != before) == (changed > 6)


@pytest.mark.parametrize(("clients", "known"), [(3, False), (4, False), (5, True)])
def test_fewer_than_five_say_nothing_of_what_is_typical(clients, known, undisturbed):
    options = ["strategy=fielding", "drift=none", "rounds=1", "participants=3"]
    run = undisturbed(*options, f"clients={clients}")
    assert (run.state.typical_report > 0) == known


@pytest.mark.parametrize("numbers", [[np.nan, 1], [np.inf, 1], []])
def test_what_is_not_finite_or_missing_has_no_length(numbers):
    data = np.array(numbers, np.float32)
    metrics = {"representation": data.tobytes()} if numbers else {}
    assert reported_length("evaluate", Result(1, 3, metrics=metrics)) is None
    arrays = [np.float32([3, -4])]
    assert reported_length("query", Result(1, 3, arrays)) == 7
    assert reported_length("train", Result(1, 3, arrays)) is None
