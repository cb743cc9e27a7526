"""Methods that others are compared with."""

from operator import ne

import numpy as np
import pytest

from cfl_flower.client.drift_report import DriftReport
from cfl_flower.config.compose import compose_config
from cfl_flower.errors import ConfigError
from cfl_flower.types import Result
from simulations.compare import make_jobs
from simulations.engines.inprocess import InProcessGrid
from tests.conftest import open_method

# Ditto


def test_clients_that_never_took_part_are_served_the_global_model(run_small):
    # One batch holds all samples, so that the orders of batches do not matter.
    whole = ["participants=1", "rounds=1", "strategy.local.batch_size=999"]
    ditto = run_small("strategy=ditto", *whole, folder="ditto")
    fedavg = run_small("strategy=fedavg", *whole, folder="fedavg")
    accuracies = [[row["accuracy"] for row in run.clients] for run in (ditto, fedavg)]
    assert sum(map(ne, *accuracies)) <= 1


# The true clusters


def test_who_has_left_is_no_client_of_a_wrong_cluster(run_small):
    run = run_small("strategy=oracle", "devices.leaves=[2]", "devices.leaving=0.5")
    assert [row["present"] for row in run.rounds] == [12, 6, 6, 6]
    assert [row["ari"] for row in run.rounds] == [1.0] * 4


# Clients alone


def test_each_client_is_a_cluster_of_its_own(undisturbed):
    run = undisturbed("strategy=local")
    # All look whether their data are new.
    assert {row["participants"] for row in run.rounds} == {12}
    assert {row["num_clusters"] for row in run.rounds} == {12}
    assert all(row["client"] == row["cluster"] for row in run.clients)


def test_clients_train_for_a_whole_run_at_once_when_their_data_are_new(run_small):
    half = ["drift=rotate", "drift.rounds=[3]", "drift.fraction=0.5"]
    run = run_small("strategy=local", *half, "strategy.local.epochs=5")
    # Half of the clients take part in each of four rounds of five epochs.
    epochs = 2 * 5
    found = [row["client_epochs"] for row in run.rounds]
    assert found == [12 * epochs, 0, 6 * epochs, 0]


# Clusters that stay


def test_static_clusters_start_as_fieldings_and_never_move(undisturbed):
    static, fielding = map(undisturbed, ("strategy=static", "strategy=fielding"))
    clusters = {row["client"]: row["cluster"] for row in fielding.clients[:12]}
    assert all(row["cluster"] == clusters[row["client"]] for row in static.clients)
    assert static.rounds[0]["accuracy"] == fielding.rounds[0]["accuracy"]
    assert static.rounds[1]["ari"] == 1
    assert static.rounds[2]["ari"] < 1
    for key in ("drifted", "moved", "reclustered", "heterogeneity"):
        assert {row[key] for row in static.rounds} == {None}


def report(client: int, label: int) -> Result:
    histogram = np.eye(10, dtype=np.float32)[label]
    return Result(client, 10, report=DriftReport(histogram, 10))


def test_a_late_client_joins_the_nearest_centre_and_moves_none(tmp_path):
    static = open_method(tmp_path, "strategy=static", "clients=8", "participants=4")
    static.welcome(1, [report(client, client % 2) for client in range(6)])
    before = static.state.centres.copy()
    static.welcome(2, [report(6, 1), report(7, 5)])
    assert static.state.clusters.tolist() == [0, 1, 0, 1, 0, 1, 1, 0]
    assert np.array_equal(static.state.centres, before)


def test_a_concept_that_goes_on_keeps_its_model_whoever_comes(tmp_path):
    swap = ["drift=swap_all", "drift.every=null", "drift.rounds=[2]"]
    wishes = ["partition=shifted", "drift.probability=1", "clients=8", *swap]
    oracle = open_method(tmp_path, "strategy=oracle", "participants=4", *wishes)
    oracle.welcome(1, [report(client, 0) for client in range(8)])
    state = oracle.state
    state.models = [np.full(3, float(k), np.float32) for k in range(4)]
    before = state.clusters.copy()
    oracle.absorb_evaluate(1, [])
    assert (state.clusters != before).any()
    assert [model.tolist() for model in state.models] == [[k] * 3 for k in range(4)]


def test_its_clusters_are_the_true_concepts_in_every_round(run_small):
    run = run_small("strategy=oracle", "rounds=6", "drift.rounds=[3,5]")
    assert {row["ari"] for row in run.rounds} == {1.0}
    assert [row["reclustered"] for row in run.rounds] == [False, True] * 2 + [False] * 2


def test_a_partial_drift_moves_only_who_drifted(run_small):
    run = run_small("strategy=oracle", "drift.fraction=0.25")
    assert {row["ari"] for row in run.rounds} == {1.0}
    assert run.rounds[-1]["num_clusters"] > 3


ONE_CONCEPT = ["drift=none", "partition=dirichlet", "clients=12", "rounds=2"]


def test_without_several_concepts_there_is_no_oracle_and_no_index(run_small):
    with pytest.raises(ConfigError, match=r"strategy=oracle .* several true concepts"):
        compose_config(["strategy=oracle", *ONE_CONCEPT])
    run = run_small("strategy=fedavg", *ONE_CONCEPT)
    assert [row["ari"] for row in run.rounds] == [None, None]
    # A single one at first is one of several where they change in the run.
    changing = ["drift=sudden", "drift.rounds=[2]", *ONE_CONCEPT[1:]]
    assert compose_config(["strategy=oracle", *changing]).timeline.has_concepts
    late = compose_config(["drift=sudden", "drift.rounds=[3]", *ONE_CONCEPT[1:]])
    assert not late.timeline.has_concepts


def test_a_comparison_leaves_the_oracle_out_where_there_is_none(tmp_path):
    asked = ["strategy=fedavg,oracle", *ONE_CONCEPT, f"output_dir={tmp_path}"]
    names = [job.config.names["strategy"] for job in make_jobs(asked)]
    assert names == ["fedavg"]


def test_real_devices_have_no_known_concepts(run_small):
    grid = InProcessGrid([{"client-id": i} for i in range(12)])
    with pytest.raises(ConfigError, match="use another strategy on real devices"):
        run_small("strategy=oracle", grid=grid)
