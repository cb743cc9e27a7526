"""FLUX against its authors' code, step by step and as a whole."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfl_flower.errors import InvalidResultError
from cfl_flower.types import Result
from strategies.flux import Flux
from tests.conftest import open_method

ROTATED = [
    *("strategy=flux", "partition.groups=1", "drift=rotate", "drift.rounds=[2]"),
    *("model=mlp", "model.hidden=32", "clients=12", "participants=12", "rounds=12"),
    *("strategy.local.epochs=3", "strategy.local.learning_rate=0.05"),
]


def test_rotated_clients_are_clustered_once_and_found_without_labels(run_small):
    run = run_small(*ROTATED)
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
    quiet = run_small(*ROTATED, "strategy.unlabelled=false", folder="quiet")
    assert "accuracy_unlabelled" not in quiet.rounds[-1]
    # With fewer who share a model, it is tested client by client.
    accuracy = quiet.rounds[-1]["accuracy"]
    assert accuracy == pytest.approx(after["accuracy"], abs=1e-6)


@pytest.fixture
def method(tmp_path: Path) -> Flux:
    """Return FLUX at the start, with two clients that joined."""
    found = open_method(
        tmp_path, "strategy=flux", "clients=4", "participants=4", "rounds=20"
    )
    found.welcome(1, [Result(0, 10), Result(1, 10)])
    return found


def test_it_clusters_when_the_model_gains_little_or_it_is_late(method):
    state = method.state
    for known, expected in (
        ([0.1, 0.3], False),
        ([0.1, 0.3, 0.5], False),
        ([0.1, 0.3, 0.35], True),
        # The first rise was small, as any may be in the code.
        ([0.1, 0.15, 0.5, 0.8], True),
    ):
        state.accuracies = np.array(known)
        assert method.good_enough(len(known) + 2) is expected
    state.accuracies = np.arange(16) / 10
    assert not method.good_enough(16)
    assert method.good_enough(17)


def test_newcomers_join_the_cluster_with_the_nearest_inputs(method):
    state = method.state
    state.profiler = [state.models[0]]
    state.models = state.models * 2
    state.ranges = np.ones(22)
    state.ranges[1] = 1000
    state.landmarks = np.zeros((2, 20))
    state.landmarks[1, 0] = 4
    profile = np.zeros(220, np.float32)
    profile[0] = 3
    # Neither deviations, of a large range, nor labels matter.
    profile[10] = 500
    profile[20] = 1e6
    metrics: dict[str, Any] = {"profile": profile.tobytes()}
    told = method.read_result("query", Result(2, 5, metrics=metrics))
    method.welcome(9, [told])
    assert state.clusters.tolist() == [0, 0, 1]
    for wrong in (None, profile[:-1].tobytes(), (profile * np.nan).tobytes(), 3):
        with pytest.raises(InvalidResultError):
            method.read_result("query", Result(3, 5, metrics={"profile": wrong}))


@pytest.mark.parametrize("fits", [None, -1, 6, 2.0, True])
def test_a_count_that_cannot_be_is_refused(fits, method):
    with pytest.raises(InvalidResultError, match="fits"):
        method.read_result("train", Result(0, 5, metrics={"fits": fits}))
    assert method.read_result("train", Result(0, 5, metrics={"fits": 5})).report == 5


def test_what_is_tested_without_labels_is_what_is_tested_with_them(run_small):
    turned = [*ROTATED, "drift.rounds=[2,11]"]
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
