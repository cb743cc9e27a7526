"""StoCFL against its paper, step by step and as a whole."""

import json
from typing import Any

import numpy as np
import pytest

from cfl_flower.client.resources import open_resources
from cfl_flower.clustering.similarity import normalise
from cfl_flower.errors import InvalidResultError
from cfl_flower.learning.aggregation import mean_model
from cfl_flower.learning.gradients import full_gradient
from cfl_flower.learning.training import train
from cfl_flower.seeding import generator
from cfl_flower.types import Vector
from clients.stocfl import StoCFLClient
from strategies.stocfl import StoCFLState
from strategies.stocfl.method import check_direction
from tests.conftest import open_method

STO = ["strategy=stocfl", "drift.rounds=[]"]
MODEL = 650 * 4


def outcomes(run: Any) -> list[tuple[int, int, float]]:
    """Return round, client and accuracy of every test."""
    return [(row["round"], row["client"], row["accuracy"]) for row in run.clients]


def test_psi_of_another_length_is_refused():
    unit = normalise(np.float32([3, 4, 0]))
    check_direction(unit)
    check_direction(0 * unit)
    with pytest.raises(InvalidResultError, match="length 2 instead of 1"):
        check_direction(2 * unit)


def test_clusters_without_members_go_with_all_that_belongs_to_them():
    values = [np.float32([number]) for number in range(5)]
    trained = np.array([False, True, False, False, True])
    state = StoCFLState(
        [*range(3)], np.array([1, 3, 4]), values, sums=values, trained=trained
    )
    state.drop_empty()
    assert state.clusters.tolist() == [1, 2, 3]
    assert [int(model[0]) for model in state.models] == [0, 1, 3, 4]
    assert [int(total[0]) for total in state.sums] == [0, 1, 3, 4]
    assert state.trained.tolist() == [False, True, False, True]


def test_a_chain_of_merges_weighs_every_member_once(tmp_path):
    stocfl = open_method(tmp_path, *STO, "clients=8", "participants=8")
    state = stocfl.state
    state.clients, state.clusters = list(range(8)), np.array([1, 2, 2, 3, 3, 3, 3, 3])
    state.models = [np.float32([each]) for each in (0, 1, 2, 4)]
    angles = np.radians([0, 5, 45])
    units = np.column_stack([np.cos(angles), np.sin(angles)])
    state.sums = [np.zeros(0), *(units.T * [1, 2, 5]).T]
    state.trained = np.array([False, True, True, True])
    # 1 and 2 first, then both with 3: a mean of 1, two times 2 and five times 4.
    assert stocfl.merge_clusters(range(8)) == 2
    assert state.clusters.tolist() == [1] * 8
    assert state.models[1] == pytest.approx([25 / 8])
    assert state.sums[1] == pytest.approx([1, 2, 5] @ units)


# The whole


def test_an_invalid_psi_costs_only_its_client(run_small, monkeypatch):
    honest = StoCFLClient.direction

    def told(client: StoCFLClient, anchor: Vector, round: int) -> Vector:
        """Leave out a number of client 3's, and double client 5's."""
        psi = honest(client, anchor, round)
        return {3: psi[:-1], 5: 2 * psi}.get(int(client.context.client), psi)

    monkeypatch.setattr(StoCFLClient, "direction", told)
    run = run_small(*STO, "participants=12", "rounds=1")
    failed = [(f["client"], f["reason"]) for f in run.rounds[0]["failures"]]
    assert failed == [(3, "shape"), (5, "representation")]
    state = run.state
    unknown = np.flatnonzero(~state.known()).tolist()
    assert unknown == np.flatnonzero(state.clusters == 0).tolist() == [3, 5]
    assert run.rounds[0]["purity"] == 1


def test_psi_is_taken_at_the_initial_model_in_every_round(run_small):
    run = run_small(*STO, "participants=3", "rounds=6")
    state = run.state
    resources = open_resources(json.dumps(run.config.resolved))
    assert len(np.unique(state.reported[state.known()])) > 2
    for row in np.flatnonzero(state.known()):
        model = resources.model.load(resources.initial)
        samples = resources.stream.view(int(row), 1).train()
        expected = normalise(full_gradient(model, *samples).numpy())
        assert state.representations[row] == pytest.approx(expected, abs=1e-7)


def test_clusters_are_the_true_concepts_once_all_clients_took_part(run_small):
    run = run_small(*STO, "clients=24", "rounds=8", "participants=9")
    known = [row["known"] for row in run.rounds]
    assert known[0] == 9
    assert known == sorted(known)
    assert all(row["purity"] == 1 for row in run.rounds)
    last = run.rounds[-1]
    assert last["known"] == 24
    assert last["found"] == last["num_clusters"] == 3
    assert last["ari"] == 1
    assert run.rounds[0]["merged"] == 9 - run.rounds[0]["found"]


@pytest.mark.parametrize("weighting", ["plain", "samples"])
def test_stocfls_single_cluster_has_fedavgs_model_under_sampling(weighting, run_small):
    options = ["participants=5", f"strategy.weighting={weighting}", "drift.rounds=[]"]
    one = ["strategy.threshold=-1", "strategy.regularisation=0"]
    sto = run_small("strategy=stocfl", *one, *options, folder="sto")
    fedavg = run_small("strategy=fedavg", *options, folder="fedavg")
    (model,) = fedavg.state.models
    assert np.array_equal(sto.state.models[1], model)


def test_sequential_omega_goes_further_and_costs_one_exchange_per_client(run_small):
    option = ["participants=12", "strategy.threshold=-1", "strategy.regularisation=0"]
    option = [*STO, *option, "rounds=1"]
    side = run_small(*option, folder="side")
    row = run_small(*option, "strategy.omega=sequential", folder="row")
    # The cluster's model is not concerned.
    assert outcomes(side) == outcomes(row)
    moved = [float(np.linalg.norm(run.state.models[0])) for run in (side, row)]
    assert moved[1] > moved[0]
    # Each trains what the one before made of omega; the next is the mean of these.
    resources = open_resources(json.dumps(row.config.resolved))
    local, omega, chain = row.config.strategy.local, resources.initial, []
    for client in range(12):
        samples = resources.stream.view(client, 1).train()
        rng, model = generator(0, "global", 1, client), resources.model.load(omega)
        train(model, *samples, local, rng)
        omega = model.to_vector()
        chain.append(omega)
    found = row.state.models[0]
    assert found.tolist() == mean_model(chain).tolist()
    # psi; omega and theta down, theta up; then omega both ways, one by one.
    assert row.rounds[0]["bytes_down"] == (12 + 24 + 12) * MODEL
    assert row.rounds[0]["bytes_up"] == (12 + 12 + 12) * MODEL


def test_a_lost_psi_is_asked_for_in_a_later_round(run_small):
    run = run_small(*STO, "faults.drops=0.3", "rounds=9", "participants=9")
    lost = [f for row in run.rounds for f in row["failures"] if f["phase"] == "query"]
    assert lost
    assert run.rounds[-1]["purity"] == 1
    assert run.rounds[-1]["known"] > run.rounds[0]["known"]


def test_a_late_client_joins_the_nearest_cluster(run_small, late_grid):
    run = run_small(*STO, "participants=11", grid=late_grid)
    rows = {(row["round"], row["client"]): row["cluster"] for row in run.clients}
    joined = min(round for round, client in rows if client == 11)
    assert joined > 1
    assert rows[joined, 11] > 0
    # The nearest is that of its own concept, and has no client of another.
    stream = open_resources(json.dumps(run.config.resolved)).stream
    concepts = stream.timeline.concepts(joined)
    beside = [each for each in range(11) if rows[joined, each] == rows[joined, 11]]
    assert beside
    assert {concepts[client] for client in beside} == {concepts[11]}
    assert run.rounds[-1]["num_clusters"] == 3
