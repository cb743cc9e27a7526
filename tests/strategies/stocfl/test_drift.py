"""StoCFL under drift, to which it is blind unless clients report again."""

from pathlib import Path

import numpy as np
import pytest

from cfl_flower.client.drift_report import DriftReport
from cfl_flower.types import FloatArray, Plan, Result, Task
from strategies.stocfl import StoCFL, StoCFLState
from strategies.stocfl.method import ask_for_changes
from tests.conftest import open_method
from tests.strategies.stocfl.test_method import MODEL

SWAP = ["drift=swap_all", "drift.probability=1", "drift.every=null", "drift.rounds=[4]"]


def test_stocfl_is_blind_to_drift_without_refresh(run_small):
    options = [*SWAP, "clients=24", "participants=24", "rounds=6"]
    options += ["strategy.local.epochs=3"]
    blind = run_small("strategy=stocfl", *options, folder="blind")
    seeing = run_small(
        "strategy=stocfl", *options, "strategy.refresh=on_drift", folder="seeing"
    )
    assert blind.rounds[2]["ari"] == seeing.rounds[2]["ari"] == 1
    assert blind.rounds[3]["ari"] < 1
    assert seeing.rounds[3]["ari"] == 1
    assert seeing.rounds[2]["drifted"] > 0
    assert seeing.rounds[2]["moved"] > 0
    assert seeing.rounds[3]["accuracy"] > blind.rounds[3]["accuracy"]
    assert {row["drifted"] for row in blind.rounds} == {None}


@pytest.mark.parametrize(
    ("options", "drifted"),
    [
        # The test of the round before finds the data of the round of the drift.
        (["drift.rounds=[3]"], [0, 8, 0, 0, 0, 0]),
        (["drift.rounds=[3,5]"], [0, 8, 0, 8, 0, 0]),
        (["drift.rounds=[3,4]"], [0, 8, 8, 0, 0, 0]),
        (["drift.rounds=[3]", "strategy.representation=difference"], [0, 8, *[0] * 4]),
        (["drift.rounds=[3]", "strategy.start=initial"], [0, 8, 0, 0, 0, 0]),
        (["drift.rounds=[]"], [0, 0, 0, 0, 0, 0]),
    ],
)
def test_each_drift_is_reported_once(options, drifted, run_small):
    everyone = ["clients=8", "participants=8", "rounds=6", "partition.groups=2"]
    asked = ["strategy=stocfl", *everyone, *SWAP, *options]
    run = run_small(*asked, "strategy.refresh=on_drift")
    assert [row["drifted"] for row in run.rounds] == drifted
    # Behind what a participant trains there is no psi but of those that drifted.
    training = run_small(*asked, folder="blind").rounds[1:]
    sent = [
        row["bytes_up"] - blind["bytes_up"]
        for row, blind in zip(run.rounds[1:], training, strict=True)
    ]
    assert sent == [MODEL * count for count in drifted[1:]]


def three_clusters(folder: Path) -> StoCFL:
    """Return StoCFL with three clusters of two, whose models are all 1, 2 and 3."""
    asked = ["strategy=stocfl", "strategy.refresh=on_drift"]
    method: StoCFL = open_method(folder, *asked, "clients=6", "participants=2")
    axes = np.eye(3, method.width, dtype=np.float32)
    nobody: FloatArray = np.zeros(0)
    method.state = StoCFLState(
        list(range(6)),
        np.repeat([1, 2, 3], 2),
        [np.full(method.width, k, np.float32) for k in range(4)],
        [axes[client // 2] for client in range(6)],
        np.zeros(6, np.int64),
        [nobody, *(2.0 * axes.astype(np.float64))],
        np.array([False, True, True, True]),
    )
    return method


@pytest.mark.parametrize(
    ("now", "clusters", "models", "moved"),
    [
        # New samples of the old kind: everyone comes back to where it was.
        ([0, 0, 1, 1, 2, 2], [1, 1, 2, 2, 3, 3], [1, 2, 3], 0),
        # All of 1 and of 2 change places; the models stay with their kinds.
        ([1, 1, 0, 0, None, None], [2, 2, 1, 1, 3, 3], [1, 2, 3], 4),
        # A kind that nobody has any more goes, and its model.
        ([1, 1, None, None, None, None], [1, 1, 1, 1, 2, 2], [2, 3], 2),
        # A new kind: the first founds a cluster, the second joins it.
        ([None, None, None, None, 3, 3], [1, 1, 2, 2, 3, 3], [1, 2, 1], 2),
    ],
)
def test_drifted_clients_are_placed_by_the_old_clusters(
    now, clusters, models, moved, tmp_path
):
    method = three_clusters(tmp_path)
    kinds = np.eye(4, method.width, dtype=np.float32)
    reports = [
        Result(client, 1, report=DriftReport(kinds[kind], 1))
        for client, kind in enumerate(now)
        if kind is not None
    ]
    method.absorb_evaluate(5, reports)
    state = method.state
    assert state.clusters.tolist() == clusters
    assert [float(model[0]) for model in state.models[1:]] == models
    assert method.run.record.moved == moved
    for cluster, total in list(enumerate(state.sums))[1:]:
        members = np.flatnonzero(state.clusters == cluster)
        expected = np.sum([state.representations[row] for row in members], axis=0)
        assert total == pytest.approx(expected)


def test_known_clients_are_asked_for_changes_with_their_test():
    tests = Plan([Task(0, (1,)), Task(1, (0,))])
    plan = ask_for_changes(tests, {0: 7})
    assert plan.tasks == [Task(0, (1,), {"reported": 7}), Task(1, (0,))]
    # And in rounds without tests.
    plan = ask_for_changes(Plan([]), {0: 7, 2: 3})
    assert plan.tasks == [Task(0, (), {"reported": 7}), Task(2, (), {"reported": 3})]
    assert ask_for_changes(Plan([]), {}).tasks == []
