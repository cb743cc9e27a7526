"""FEROMA against its authors' code, step by step and as a whole."""

from pathlib import Path

import numpy as np
import pytest

from cfl_flower.communication.results import Results
from cfl_flower.types import Result
from strategies.feroma import Feroma
from tests.conftest import open_method

ROTATED = [
    *("strategy=feroma", "partition.groups=1", "drift=rotate", "drift.rounds=[8]"),
    *("model=mlp", "model.hidden=32", "clients=12", "participants=12", "rounds=12"),
    *("strategy.local.epochs=3", "strategy.local.learning_rate=0.05"),
]


def test_drifted_clients_are_served_models_of_data_like_theirs(run_small):
    run = run_small(*ROTATED)
    sizes = [row["num_clusters"] for row in run.rounds]
    assert sizes[:5] == [1] * 5
    # Each participant has a model of its own, and is served it.
    assert sizes[5:] == [12] * 7
    assert "accuracy_unlabelled" not in run.rounds[4]
    last = run.rounds[-1]
    single = run_small(*ROTATED, "strategy=fedavg", folder="single")
    common = single.rounds[-1]["accuracy"]
    assert last["accuracy"] > common + 0.05
    assert last["accuracy_unlabelled"] > common + 0.05
    sparse = run_small(*ROTATED, "system.evaluate_every=3", folder="sparse")
    assert sparse.rounds[-1]["accuracy"] == last["accuracy"]


@pytest.fixture
def method(tmp_path: Path) -> Feroma:
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


def test_starts_are_means_weighted_by_samples_over_distances(method):
    plan = method.plan_train(6)
    assert [task.client for task in plan.tasks] == [0, 1, 2]
    starts = [float(plan.models[task.models[0]][0]) for task in plan.tasks]
    # 10 / 1 and 20 / 3: two fifths of 6; 10 / 2 and 20 / 2: two thirds.
    assert starts == pytest.approx([0, 2.4, 4], abs=1e-5)


def test_models_go_with_the_profiles_of_their_data(method):
    state = method.state
    ones = np.ones(len(state.models[0]), np.float32)
    method.absorb_train(6, Results([Result(0, 7, [ones]), Result(2, 9, [3 * ones])]))
    assert [model[0] for model in state.models] == [1, 3]
    assert state.weights.tolist() == [7, 9]
    assert state.sources[:, 0].tolist() == [0, 2]
    assert state.landmarks.shape == (2, 20)
    # Client 1 is as far from both; ties go to the first.
    assert state.clusters.tolist() == [0, 0, 1]
    told = np.full(220, 1.5, np.float32)
    result = Result(1, 5, metrics={"correct": 1, "profile": told.tobytes()})
    method.absorb_evaluate(6, Results([method.read_result("evaluate", result)]))
    assert state.profiles[:, 0].tolist() == [0, 1.5, 2]
    # Who comes later is served the nearest at once.
    newcomer = Result(7, 5, metrics={"profile": (2 * told).tobytes()})
    method.welcome(7, [method.read_result("query", newcomer)])
    assert state.clusters.tolist() == [0, 1, 1, 1]


def test_tests_have_what_is_served_and_what_may_be_selected(method):
    state = method.state
    state.landmarks = state.sources[:, :20]
    plan = method.plan_evaluate(6, test=True)
    assert plan.tasks[0].models == (0, 0, 1, 2, 3)
    assert plan.models[2].tolist() == [1, 1, *state.landmarks.ravel()]
    quiet = method.plan_evaluate(6, test=False)
    assert [task.models for task in quiet.tasks] == [(3,)] * 3
    assert quiet.config == {"profile": True, "halves": 3, "unlabelled": False}
