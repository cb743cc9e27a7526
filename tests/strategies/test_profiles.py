"""Methods that compare profiles of clients' data, against their authors' code."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfl_flower.communication.results import Results
from cfl_flower.engine.method import with_more
from cfl_flower.errors import InvalidResultError
from cfl_flower.types import Plan, Result
from strategies.feroma import Feroma
from strategies.flux import FITS, Flux, followed
from tests.conftest import open_method

TURNED = [
    *("partition.groups=1", "drift=rotate", "participants=12", "rounds=12"),
    *("model=mlp", "model.hidden=32"),
    *("strategy.local.epochs=3", "strategy.local.learning_rate=0.05"),
]
FEROMA_RUN = ["strategy=feroma", "drift.rounds=[8]", *TURNED]
FLUX_RUN = ["strategy=flux", "drift.rounds=[2]", *TURNED]


# FEROMA


def test_drifted_clients_are_served_models_of_data_like_theirs(run_small):
    run = run_small(*FEROMA_RUN)
    sizes = [row["num_clusters"] for row in run.rounds]
    assert sizes[:5] == [1] * 5
    # Each participant has a model of its own, and is served it.
    assert sizes[5:] == [12] * 7
    assert "accuracy_unlabelled" not in run.rounds[4]
    last = run.rounds[-1]
    single = run_small(*FEROMA_RUN, "strategy=fedavg", folder="single")
    common = single.rounds[-1]["accuracy"]
    assert last["accuracy"] > common + 0.05
    assert last["accuracy_unlabelled"] > common + 0.05
    sparse = run_small(*FEROMA_RUN, "system.evaluate_every=3", folder="sparse")
    assert sparse.rounds[-1]["accuracy"] == last["accuracy"]


@pytest.fixture
def feroma(tmp_path: Path) -> Feroma:
    """Return FEROMA of three clients, with two models and L = 10."""
    options = ["strategy=feroma", "clients=3", "participants=3", "rounds=20"]
    found: Feroma = open_method(tmp_path, *options)
    found.welcome(1, [Result(client, 10) for client in range(3)])
    state = found.state
    length = len(state.models[0])
    state.profiler = [state.models[0]]
    state.ranges = np.ones(22)
    state.models = [np.full(length, value, np.float32) for value in (0, 6)]
    state.weights = np.array([10.0, 20.0])
    state.sources = np.zeros((2, 220))
    state.sources[1, 0] = 4
    state.profiles = np.zeros((3, 220))
    state.profiles[:, 0] = [0, 1, 2]
    return found


def test_starts_are_means_weighted_by_samples_over_distances(feroma):
    plan = feroma.plan_train(6)
    assert [task.client for task in plan.tasks] == [0, 1, 2]
    starts = [float(plan.models[task.models[0]][0]) for task in plan.tasks]
    # 10 / 1 and 20 / 3: two fifths of 6; 10 / 2 and 20 / 2: two thirds.
    assert starts == pytest.approx([0, 2.4, 4], abs=1e-5)


def test_models_go_with_the_profiles_of_their_data(feroma):
    state = feroma.state
    ones = np.ones(len(state.models[0]), np.float32)
    feroma.absorb_train(6, Results([Result(0, 7, [ones]), Result(2, 9, [3 * ones])]))
    assert [model[0] for model in state.models] == [1, 3]
    assert state.weights.tolist() == [7, 9]
    assert state.sources[:, 0].tolist() == [0, 2]
    # Client 1 is as far from both; ties go to the first.
    assert state.clusters.tolist() == [0, 0, 1]
    told = np.full(220, 1.5, np.float32)
    result = Result(1, 5, metrics={"correct": 1, "profile": told.tobytes()})
    feroma.absorb_evaluate(6, Results([feroma.read_result("evaluate", result)]))
    assert state.profiles[:, 0].tolist() == [0, 1.5, 2]
    # Who comes later is served the nearest at once.
    newcomer = Result(7, 5, metrics={"profile": (2 * told).tobytes()})
    feroma.welcome(7, [feroma.read_result("query", newcomer)])
    assert state.clusters.tolist() == [0, 1, 1, 1]


def test_tests_have_what_is_served_and_what_may_be_selected(feroma):
    state = feroma.state
    served = feroma.plan_evaluate(6, test=True)
    plan = with_more(served, feroma.unlabelled_choice())
    assert plan.tasks[0].models == (0, 2, 3, 4, 5, 6)
    assert plan.models[5].tolist() == [1, 1, *state.sources[:, :20].ravel()]
    assert plan.models[2] is plan.models[6] is state.profiler[0]
    quiet = feroma.plan_evaluate(6, test=False)
    assert [task.models for task in quiet.tasks] == [(0,)] * 3
    assert quiet.config == {"profile": True, "halves": 3}


# FLUX


def test_rotated_clients_are_clustered_once_and_found_without_labels(run_small):
    run = run_small(*FLUX_RUN)
    begun = [row["round"] for row in run.rounds if row["reclustered"]]
    assert len(begun) == 1
    before, after = run.rounds[begun[0] - 2], run.rounds[-1]
    assert "accuracy_unlabelled" not in before
    assert before["num_clusters"] == 1
    assert after["num_clusters"] > 1
    assert after["accuracy_unlabelled"] > before["accuracy"]
    rows = [row for row in run.clients if row["round"] == 12]
    shares = np.array([row["accuracy_unlabelled"] for row in rows])
    counts = np.array([row["num_examples"] for row in rows])
    assert shares @ counts / counts.sum() == pytest.approx(after["accuracy_unlabelled"])
    quiet = run_small(*FLUX_RUN, "strategy.unlabelled=false", folder="quiet")
    assert "accuracy_unlabelled" not in quiet.rounds[-1]
    # With fewer who share a model, it is tested client by client.
    accuracy = quiet.rounds[-1]["accuracy"]
    assert accuracy == pytest.approx(after["accuracy"], abs=1e-6)


@pytest.fixture
def flux(tmp_path: Path) -> Flux:
    """Return FLUX at the start, with two clients that joined."""
    options = ["strategy=flux", "clients=4", "participants=4", "rounds=20"]
    found: Flux = open_method(tmp_path, *options, "strategy.drift_rounds=[9]")
    found.welcome(1, [Result(0, 10), Result(1, 10)])
    return found


def test_it_clusters_when_the_model_gains_little_or_it_is_late(flux):
    state = flux.state
    for known, expected in (
        ([0.1, 0.3], False),
        ([0.1, 0.3, 0.5], False),
        ([0.1, 0.3, 0.35], True),
        # The first rise was small, as any may be in the code.
        ([0.1, 0.15, 0.5, 0.8], True),
    ):
        state.accuracies = np.array(known)
        assert flux.good_enough(len(known) + 2) is expected
    state.accuracies = np.arange(16) / 10
    assert not flux.good_enough(16)
    assert flux.good_enough(17)


def test_what_a_client_claims_to_get_right_counts_up_to_the_cap(flux):
    """Three of four get 2 of 10 right; one says that it has a million, all right."""
    trained = [np.zeros_like(flux.state.models[0])]
    results = [Result(client, 10, trained, metrics={FITS: 2}) for client in range(3)]
    results.append(Result(3, 10**6, trained, metrics={FITS: 10**6}))
    flux.welcome(1, [Result(2, 10), Result(3, 10)])
    read = [flux.read_result("train", each) for each in results]
    # As the stage that limits weights leaves it.
    read[3] = replace(read[3], num_examples=50)
    flux.absorb_train(2, read)
    # Of 10 samples at the median it counts for five times as many at most.
    assert flux.state.accuracies.tolist() == [pytest.approx(56 / 80)]


def test_newcomers_join_the_cluster_with_the_nearest_inputs(flux):
    state = flux.state
    state.profiler = [state.models[0]]
    state.models = state.models * 2
    state.ranges = np.ones(22)
    state.ranges[1] = 1000
    state.sources = np.zeros((2, 220))
    state.sources[1, 0] = 4
    profile = np.zeros(220, np.float32)
    profile[0] = 3
    # Neither deviations, of a large range, nor labels matter.
    profile[10] = 500
    profile[20] = 1e6
    metrics: dict[str, Any] = {"profile": profile.tobytes()}
    told = flux.read_result("query", Result(2, 5, metrics=metrics))
    flux.welcome(9, [told])
    assert state.clusters.tolist() == [0, 0, 1]
    for wrong in (None, profile[:-1].tobytes(), (profile * np.nan).tobytes(), 3):
        with pytest.raises(InvalidResultError):
            flux.read_result("query", Result(3, 5, metrics={"profile": wrong}))


def test_clusters_of_a_drift_go_on_with_the_nearest_models(flux, monkeypatch):
    state = flux.state
    flux.welcome(2, [Result(2, 10), Result(3, 10)])
    state.profiler = state.models
    state.models = [state.models[0] * 0 + value for value in (3, 5)]
    # The last group is of labels: there the old clusters are 9 apart.
    state.ranges = np.append(np.ones(21), 100)
    state.sources = np.zeros((2, 220))
    state.sources[1, 219] = 900
    told = np.zeros((4, 220), np.float32)
    told[:, 219] = [700, 100, 100, 700]
    answers = [Result(i, 10, metrics={"profile": told[i].tobytes()}) for i in range(4)]
    asked: list[Plan] = []
    monkeypatch.setattr(flux.run, "ask", lambda _, plan: asked.append(plan) or answers)
    flux.plan_train(8)
    assert not asked
    plan = flux.plan_train(9)
    assert asked[0].models == state.profiler
    assert state.clusters.tolist() == [0, 1, 1, 0]
    # At 7 and 1: the first has the model of 9, the other that of 0.
    assert [plan.models[task.models[0]][0] for task in plan.tasks] == [5, 3, 3, 5]
    assert state.sources[:, 219].tolist() == [700, 100]
    assert state.ranges[21] == 100


def test_who_does_not_answer_goes_where_most_of_its_cluster_go():
    old = np.array([0, 0, 0, 1, 1, 1, 1, 2, 3, 3, 3])
    # Of cluster 2 nobody answers, cluster 3 parts: they go to the largest, 1.
    new = followed(
        old, np.array([0, 1, 3, 4, 5, 8, 9]), np.array([0, 0, 1, 1, 1, 0, 1])
    )
    assert new.tolist() == [0, 0, 0, 1, 1, 1, 1, 1, 0, 1, 1]


def test_clusters_are_right_again_after_a_drift(run_small):
    turned = [*FLUX_RUN, "drift.rounds=[2,9]"]
    once = run_small(*turned)
    again = run_small(*turned, "strategy.drift_rounds=[9]", folder="again")
    assert again.numbers[:7] == once.numbers[:7]
    assert max(row["ari"] for row in once.rounds[8:]) < 0.1
    assert [row["ari"] for row in again.rounds[8:]] == [1] * 4
    assert again.rounds[-1]["accuracy"] > once.rounds[-1]["accuracy"] + 0.05


@pytest.mark.parametrize("fits", [None, -1, 6, 2.0, True])
def test_a_count_that_cannot_be_is_refused(fits, flux):
    with pytest.raises(InvalidResultError, match="fits"):
        flux.read_result("train", Result(0, 5, metrics={"fits": fits}))
    assert flux.read_result("train", Result(0, 5, metrics={"fits": 5})).report == (5, 0)


def test_what_is_tested_without_labels_is_what_is_tested_with_them(run_small):
    turned = [*FLUX_RUN, "drift.rounds=[2,11]"]
    plain = run_small(*turned)
    ahead = run_small(*turned, "evaluation=prequential", folder="ahead")
    found = [
        [row.get("accuracy_unlabelled") for row in run.rounds] for run in (plain, ahead)
    ]
    differing = [
        i + 1 for i, (one, two) in enumerate(zip(*found, strict=True)) if one != two
    ]
    # The tests of the tenth round are of the images that are turned in the next one.
    assert differing == [10]
