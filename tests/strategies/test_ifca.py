from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cfl_flower.checkpoint import Checkpoint
from cfl_flower.config import compose_config
from strategies.choosing import ChoosingState

Runner = Callable[..., Any]
IFCA = ["strategy=ifca", "clusters=3"]
SHIFT = [
    "drift=swap_all",
    "drift.probability=1",
    "drift.every=null",
    "drift.rounds=[4]",
]


def test_a_client_is_served_the_model_that_it_chose(run_small: Runner) -> None:
    run = run_small(*IFCA, "drift=none", "participants=12", "rounds=8", "clusters=2")
    overrides = (run.folder / "config.yaml").read_text().splitlines()[0].split()[4:]
    config = compose_config(overrides)
    _, state = Checkpoint(run.folder / "checkpoint", config.resolved).load(
        ChoosingState
    )
    assert len(state.models) == 2
    last = {r["client"]: r["cluster"] for r in run.clients if r["round"] == 8}
    assert state.clusters.tolist() == [last[client] for client in state.clients]


def test_participants_receive_all_models_and_return_one(run_small: Runner) -> None:
    run = run_small(*IFCA, "drift=none", "rounds=2")
    model = 650 * 4
    # The first choice of all 12, then 6 participants with 3 models each.
    assert run.rounds[0]["bytes_down"] == (12 * 3 + 6 * 3) * model
    assert run.rounds[1]["bytes_down"] == 6 * 3 * model
    assert run.rounds[1]["bytes_up"] == 6 * model


def test_with_one_cluster_it_is_plain_fedavg_from_another_seed(
    run_small: Runner,
) -> None:
    run = run_small("strategy=ifca", "clusters=1", "drift=none")
    assert all(row["cluster_sizes"] == [12] for row in run.rounds)


def test_migration_fetches_all_models_for_those_whose_data_shifted(
    run_small: Runner,
) -> None:
    options = [*IFCA, *SHIFT, "rounds=5"]
    plain = run_small(*options, folder="plain")
    moving = run_small(*options, "strategy.migration=true", folder="moving")
    assert plain.rounds[2]["drifted"] is None
    drifted = moving.rounds[2]["drifted"]
    assert drifted > 0
    extra = moving.rounds[2]["bytes_down"] - plain.rounds[2]["bytes_down"]
    assert extra == drifted * 3 * 650 * 4
    assert [row["drifted"] for row in moving.rounds] == [0, 0, drifted, 0, 0]
