"""FedDrift against its paper, step by step and as a whole."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfl_flower.communication.results import Results
from cfl_flower.errors import InvalidResultError
from cfl_flower.privacy.clipping import capped_losses
from cfl_flower.runs.record import RoundRecord
from cfl_flower.types import Result
from strategies import feddrift
from strategies.feddrift import (
    NEW,
    FedDrift,
    merge_closest,
    model_distances,
)
from tests.conftest import open_method


def test_distances_by_hand():
    # Of models 0 to 2, on the data of model 0 and of model 1; nobody has any of 2.
    none = [0.0, 0, 0]
    losses = np.array(
        [[[1.0, 5, 9], none, none], [none, [3, 2, 9], none], [none, [5, 4, 9], none]]
    )
    samples = np.array([[10.0, 0, 0], [0, 30, 0], [0, 10, 0]])
    # L_00 = 1, L_10 = 5; on the data of model 1: L_01 = 3.5, L_11 = 2.5.
    gaps = model_distances(losses, samples)
    assert gaps[0, 1] == gaps[1, 0] == pytest.approx(max(3.5 - 1, 5 - 2.5, 0))
    assert np.isinf(gaps[2, :2]).all()
    assert np.diagonal(gaps).tolist() == [0, 0, 0]
    # A client that has data of both models is measured on both.
    losses[0, 1], samples[0, 1] = [7.5, 4.5, 9], 40
    assert model_distances(losses, samples)[0, 1] == pytest.approx(5.5 - 1)


def test_merging_is_by_complete_linkage_from_the_closest():
    gaps = np.array(
        [[0.0, 0.3, 9, 0.4], [0.3, 0, 0.2, 9], [9, 0.2, 0, 9], [0.4, 9, 9, 0]]
    )
    # 1 and 2 first; 0 is near 1 but far from 2; then 0 and 3.
    assert merge_closest(gaps, 0.5).tolist() == [0, 1, 1, 0]
    assert merge_closest(gaps, 0.1).tolist() == [0, 1, 2, 3]
    assert merge_closest(np.full((3, 3), np.inf), 0.5).tolist() == [0, 1, 2]
    # Of pairs that are equally close, as models that are no worse on each other's data,
    # the first.
    level = np.array([[0.0, 0, 1], [0, 0, 0], [1, 0, 0]])
    assert merge_closest(level, 0.5).tolist() == [0, 0, 1]


@given(st.integers(1, 8), st.integers(0, 999), st.floats(0.05, 1))
@settings(max_examples=50, deadline=None)
def test_nobody_merges_across_delta(count, seed, delta):
    rng = np.random.default_rng(seed)
    gaps = rng.random((count, count))
    gaps = np.maximum(gaps, gaps.T)
    merged = merge_closest(gaps, delta)
    for group in range(merged.max() + 1):
        members = np.flatnonzero(merged == group)
        inside = gaps[np.ix_(members, members)][~np.eye(len(members), dtype=bool)]
        assert (inside < delta).all()


DRIFT = [
    *("strategy=feddrift", "partition.groups=1", "drift=sudden", "drift.rounds=[5]"),
    *("clients=10", "participants=10", "rounds=8", "strategy.local.epochs=10"),
]


def test_drifted_clients_start_models_that_merge_by_concept(run_small):
    run = run_small(*DRIFT)
    counts = [row["num_clusters"] for row in run.rounds]
    assert counts[:4] == [1, 1, 1, 1]
    assert run.rounds[4]["drifted"] > 0
    assert counts[4] == run.rounds[4]["drifted"] + (run.rounds[4]["drifted"] < 10)
    assert any(row["reclustered"] for row in run.rounds[5:])
    assert run.rounds[-1]["ari"] == 1
    single = run_small(*DRIFT, "strategy=fedavg", folder="single")
    assert run.rounds[-1]["accuracy"] > single.rounds[-1]["accuracy"]


def test_eager_clients_who_drift_in_a_round_train_one_new_model(run_small):
    options = [*DRIFT, "strategy.form=eager", "clients=20", "participants=20"]
    run = run_small(*options, "privacy.secure_sums=true")
    drifted = [row["drifted"] for row in run.rounds]
    assert drifted[:4] == [0] * 4
    assert 2 < drifted[4] < 20
    counts = [row["num_clusters"] for row in run.rounds]
    assert counts[4] == 2
    assert all(row["left_out"] == 0 for row in run.rounds[:5])


@pytest.fixture
def server(tmp_path: Path) -> FedDrift:
    """Return a server of three clients with two models, in round 4."""
    sizes = ["clients=3", "participants=3"]
    server: FedDrift = open_method(tmp_path, "strategy=feddrift", *sizes)
    server.welcome(1, [Result(client, 1) for client in range(3)])
    server.state.models = [np.zeros(2, np.float32), np.ones(2, np.float32)]
    server.engine.context.record = RoundRecord(4)
    return server


def trained(
    client: int, model: int, sizes: list[int], loss: float, value: float
) -> Result:
    """Return what a client sends that trained since round 3; all losses are alike."""
    count = len(sizes)
    metrics: dict[str, Any] = {
        "chosen": model,
        "step": 3,
        "losses": np.full((count, count), loss, np.float32).tobytes(),
        "counts": np.array(sizes, np.float32).tobytes(),
    }
    return Result(
        client, max(*sizes, 1), [np.full(2, value, np.float32)], metrics=metrics
    )


def absorb(server: FedDrift, *results: Result) -> None:
    server.absorb_train(4, Results(server.read_result("train", r) for r in results))


def test_models_merge_by_samples_and_data_go_with_them(server):
    """Those of earlier time steps count: client 2 has 60 samples of model 0."""
    server.assign(2, 1, 0)
    absorb(
        server,
        trained(0, 0, [20, 0], 1.0, 1.0),
        trained(1, NEW, [0, 0], 1.0, 9.0),
        trained(2, 1, [60, 20], 1.0, 3.0),
    )
    state = server.state
    # Model 0 became 1, of 80 samples; model 1 became 3, of 20; all fit each other.
    assert np.stack(state.models) == pytest.approx(np.array([[1.4, 1.4], [9, 9]]))
    assert state.clusters.tolist() == [0, 1, 0]
    assert state.steps.tolist() == [[2, 1, 0], [0, 3, 0], [2, 3, 0], [1, 3, 1]]


def test_a_claim_weighs_losses_by_the_cap_at_most(server):
    """Client 0 says that model 1 loses 2 on its million samples of model 0."""
    server.settings = replace(server.settings, delta=0.9)
    claim = trained(0, 0, [10**6, 0], 1.0, 1.0)
    claim.metrics["losses"] = np.float32([1, 2, 1, 1]).tobytes()
    absorb(
        server, claim, trained(1, 0, [4, 0], 1.0, 1.0), trained(2, 1, [0, 4], 1.0, 1.0)
    )
    # Five times the four of others, beside which 4 samples lose 1: a rise of 20 / 24.
    assert len(server.state.models) == 1


def test_who_trained_a_model_before_may_have_data_of_it(server):
    server.assign(0, 1, 1)
    both = trained(0, 0, [20, 5], 1.0, 1.0)
    assert server.read_result("train", both).report.samples.tolist() == [20, 5]


def test_a_claimed_loss_counts_for_the_cap_at_most():
    """Of two who have data of model 0 one claims 1000; client 2 alone has model 1's."""
    losses = np.zeros((3, 2, 2))
    losses[:, 0] = [[0.1, 8], [1000, 1000], [7, 7]]
    losses[:, 1] = [[50, 50], [50, 50], [30, 40]]
    samples = np.array([[4.0, 0], [4, 0], [0, 4]])
    has = np.broadcast_to(samples[:, :, None] > 0, losses.shape)
    told = capped_losses(losses, 5, has)
    assert told[:2, 0].tolist() == [[0.1, 8], [5, 40]]
    assert told[2, 1].tolist() == [30, 40]
    assert capped_losses(losses, None, has) is losses


def test_one_claim_of_huge_losses_merges_no_models(server):
    """Client 0 trained both; all others lose 2 more on the other model's data."""
    server.assign(0, 1, 1)
    rows = [trained(0, 0, [4, 4], 0.0, 1.0)]
    rows[0].metrics["losses"] = np.float32([1e6, 0, 0, 1e6]).tobytes()
    for client, own in ((1, 0), (2, 1)):
        sizes = [0, 0]
        sizes[own] = 16
        result = trained(client, own, sizes, 0.0, 1.0)
        table = np.zeros((2, 2), np.float32)
        table[own] = 2.2
        table[own, own] = 0.2
        result.metrics["losses"] = table.tobytes()
        rows.append(result)
    absorb(server, *rows)
    assert len(server.state.models) == 2


def test_participants_are_told_which_model_their_data_belong_to(server):
    for step, model in [(1, 0), (3, 0), (3, 1)]:
        server.assign(2, step, model)
    told = {task.client: task.config["assigned"] for task in server.plan_train(4).tasks}
    assert told == {0: "[]", 1: "[]", 2: "[[1, 0], [3, 1]]"}


def test_of_models_that_nobody_has_those_of_the_oldest_data_go(server, monkeypatch):
    """Client 2 says in each round that its data are new; two unused models may stay."""
    monkeypatch.setattr(feddrift, "MOST_UNUSED", 2)
    state = server.state
    server.assign(1, 1, 1)
    for server_round in range(4, 9):
        server.engine.context.record = RoundRecord(server_round)
        sizes = [0] * len(state.models)
        loner = trained(2, NEW, sizes, 0.0, float(server_round))
        loner.metrics["step"] = server_round
        absorb(server, loner)
    # What clients have, and the two newest that client 2 left.
    assert [float(model[0]) for model in state.models] == [0, 1, 6, 7, 8]
    assert state.clusters.tolist() == [0, 1, 4]
    assert state.steps.tolist() == [[1, 1, 1], [2, 6, 2], [2, 7, 3], [2, 8, 4]]


@pytest.mark.parametrize(
    "told",
    [
        {"step": 5},
        {"step": 0},
        {"counts": np.array([-1, 1], np.float32).tobytes()},
        {"counts": np.zeros(2, np.float32).tobytes()},
        # It never trained model 1.
        {"counts": np.array([20, 5], np.float32).tobytes()},
        {"losses": b""},
        {"losses": np.array([0, 0, -1e-3, 0], np.float32).tobytes()},
        {"losses": np.array([0, 0, np.nan, 0], np.float32).tobytes()},
    ],
)
def test_senseless_reports_are_refused(server, told):
    sound = trained(0, 0, [20, 0], 1.0, 1.0)
    assert server.read_result("train", sound).report.step == 3
    with pytest.raises(InvalidResultError):
        server.read_result("train", replace(sound, metrics={**sound.metrics, **told}))
