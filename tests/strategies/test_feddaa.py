"""FedDAA's server: when time steps begin, and what they find."""

from typing import Any

import numpy as np
import pytest

from cfl_flower.communication.results import Results
from cfl_flower.server_app import open_stream
from cfl_flower.types import Plan, Result
from tests.conftest import open_method


def at(*place: float) -> np.ndarray[Any, Any]:
    """Return prototypes of which only the first numbers are not zero."""
    return np.array([*place, *np.zeros(100 - len(place))], np.float32)


def answer(method: Any, told: list[Result]) -> list[Plan]:
    """Let a method's clients answer all that it asks; return what that is."""
    asked: list[Plan] = []
    method.run.ask = lambda _, plan: asked.append(plan) or told
    return asked


def test_a_time_step_clusters_prototypes_and_adds_components(tmp_path):
    method = open_method(tmp_path, "strategy=feddaa")
    state = method.state
    places = [at(0, 0), at(0, 1), at(90, 0), at(90, 1), at(0, 90), at(0, 92)]
    told = [Result(client, 5, [place]) for client, place in enumerate(places)]
    empty = Result(6, 0, [at(50, 50)])
    state.join([*told, empty], np.zeros(7, np.int64))
    first, second = state.models
    asked = answer(method, [*told, empty])
    state.label_shares[0] = 0.5
    plan = method.plan_train(4)
    assert [task.models for task in asked[0].tasks] == [(0,)] * 7
    assert asked[0].models == [first]
    assert (asked[0].config, asked[0].reply) == ({"prototypes": True}, (100,))
    assert (state.step, state.due) == (4, False)
    found = state.centres[:, :2].tolist()
    assert sorted(found) == [[0, 0.5], [0, 91], [90, 0.5]]
    assert method.run.record.measures["found"] == 3
    assert state.models[:2] == [first, second]
    assert (state.models[2] == method.run.initial_models(3)[2]).all()
    assert (state.label_shares == 0.1).all()
    assert state.label_shares.shape == (3, 10)
    # Participants receive components, C and centres, and return all but the centres.
    size = len(first)
    assert [*map(len, plan.models)] == [size, size, size, 30, 300]
    assert plan.models[4].tolist() == state.centres.ravel().tolist()
    assert plan.config == {"step": 4}
    assert plan.reply == (size, size, size, 30)
    assert plan.sum_spec.bases == (0, 1, 2, 3)
    # No second question, and no component less where there are fewer clusters.
    method.plan_train(5)
    assert len(asked) == 1
    state.due = True
    answer(method, told[:4])
    method.plan_train(6)
    assert (state.step, len(state.centres), len(state.models)) == (6, 2, 3)
    assert len(state.label_shares) == 3
    state.due = True
    answer(method, [empty])
    method.plan_train(7)
    assert (state.step, state.due) == (6, True)


def test_a_client_that_tells_of_a_change_begins_a_time_step(tmp_path):
    method = open_method(tmp_path, "strategy=feddaa")
    state = method.state
    state.join([Result(client, 5) for client in range(3)], np.zeros(3, np.int64))
    assert state.due
    state.due = False
    # Without a test, too, all are asked.
    assert [task.client for task in method.plan_evaluate(2, False).tasks] == [0, 1, 2]
    assert not any(task.models for task in method.plan_evaluate(2, False).tasks)
    assert all(
        task.models == (0, 1, 2, 3) for task in method.plan_evaluate(2, True).tasks
    )
    told = [Result(c, 5, metrics={"changed": c == 1}) for c in range(2)]
    read = Results(method.read_result("evaluate", each) for each in told)
    for results, due, drifted in ((read[:1], False, 0), (read, True, 1)):
        method.absorb_evaluate(2, results)
        assert (state.due, method.run.record.drifted) == (due, drifted)
    # It is due until it began.
    method.absorb_evaluate(3, read[:1])
    assert state.due
    assert method.read_result("query", told[1]).report is None


def test_it_finds_the_meanings_of_labels_and_keeps_data_of_the_same(run_small):
    job = "strategy=feddaa drift=periods partition=iid clients=24 participants=24"
    # Without turns of images.
    still = "drift.steps.turn.degrees=360 drift.steps.turn_on.degrees=360"
    run = run_small(*job.split(), *still.split(), "rounds=6", "drift.rounds=[3,5]")
    rows = run.rounds
    assert [row.get("found") for row in rows] == [2, None, 3, None, 4, None]
    assert [row["drifted"] for row in rows] == [0, 24, 0, 24, 0, 0]
    stream = open_stream(run.config)
    for now, before in ((3, 1), (5, 3)):
        names = [[stream.view(c, r).relabel for c in range(24)] for r in (now, before)]
        same = [(one == two).all() for one, two in zip(*names, strict=True)]
        assert 0 < sum(same) < 24
        assert rows[now - 1]["kept"] == pytest.approx(sum(same) / 24)
    assert rows[0]["kept"] == 0
