import numpy as np

from cfl_flower.client.context import ClientState
from cfl_flower.types import Result
from tests.conftest import open_method

FESEM = ["strategy=fesem", "clusters=3"]


def test_participants_join_the_nearest_model_from_before_the_average(tmp_path):
    options = [*FESEM, "clients=3", "participants=3", "drift=none"]
    strategy = open_method(tmp_path, *options)
    state = strategy.state
    state.clients, state.clusters = [0, 1, 2], np.array([0, 0, 0])
    state.models = [np.float32([value]) for value in (0, 10, 20)]
    values = (4.0, 6.0, 9.0)
    results = [Result(i, 1 + i, [np.float32([v])]) for i, v in enumerate(values)]
    strategy.absorb_train(1, results)
    assert state.clusters.tolist() == [0, 1, 1]
    assert [float(model[0]) for model in state.models] == [4, 7.5, 20]


def test_with_secure_sums_participants_choose_by_the_model_that_they_trained_last(
    run_small,
):
    options = [*FESEM, "drift=none", "participants=12", "privacy.secure_sums=true"]
    run = run_small(*options, "rounds=1")
    (cluster,) = np.flatnonzero(run.rounds[0]["cluster_sizes"])
    other = (cluster + 1) % 3
    for client in range(4):
        trained = ClientState(run.folder / "clients", client).part("trained")
        assert trained.at(1)["model"].shape == (650,)
        trained.save(1, {"model": run.state.models[other]})
    run = run_small(*options, "rounds=2", "resume=true")
    assert run.rounds[1]["moved"] == 4
    assert run.rounds[1]["cluster_sizes"][other] == 4
    assert run.rounds[1]["left_out"] == 0


def test_migration_compares_the_last_trained_model_with_all(run_small):
    drift = ["drift=swap_all", "drift.probability=1", "drift.every=null"]
    options = [*FESEM, *drift, "drift.rounds=[3]", "rounds=4", "participants=12"]
    run = run_small(*options, "strategy.migration=true")
    drifted = run.rounds[1]["drifted"]
    assert drifted > 0
    assert run.rounds[1]["bytes_down"] == (12 + drifted * 3) * 650 * 4
    assert all(
        (run.folder / "clients" / str(c) / "trained").is_dir() for c in range(12)
    )
    # The criterion has nothing to do with the data: accuracy is that of plain FeSEM.
    plain = run_small(*options, folder="plain")
    assert [r["accuracy"] for r in run.rounds] == [r["accuracy"] for r in plain.rounds]
