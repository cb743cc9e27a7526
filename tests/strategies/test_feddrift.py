"""FedDrift against its paper, step by step and as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfl_flower.config.compose import compose_config
from cfl_flower.errors import ConfigError
from strategies.feddrift import merge_closest, model_distances

Runner = Callable[..., Any]


def test_distances_by_hand() -> None:
    losses = np.array([[1.0, 5, 9], [3, 2, 9], [5, 4, 9], [0, 0, 0]])
    chosen, samples = np.array([0, 1, 1, -1]), np.array([10.0, 30, 10, 99])
    # L_00 = 1, L_10 = 5; on the data of model 1: L_01 = 3.5, L_11 = 2.5.
    gaps = model_distances(losses, chosen, samples)
    assert gaps[0, 1] == gaps[1, 0] == pytest.approx(max(3.5 - 1, 5 - 2.5, 0))
    assert np.isinf(gaps[2, :2]).all()
    assert np.diagonal(gaps).tolist() == [0, 0, 0]


def test_merging_is_by_complete_linkage_from_the_closest() -> None:
    gaps = np.array(
        [[0.0, 0.3, 9, 0.4], [0.3, 0, 0.2, 9], [9, 0.2, 0, 9], [0.4, 9, 9, 0]]
    )
    # 1 and 2 first; 0 is near 1 but far from 2; then 0 and 3.
    assert merge_closest(gaps, 0.5).tolist() == [0, 1, 1, 0]
    assert merge_closest(gaps, 0.1).tolist() == [0, 1, 2, 3]
    assert merge_closest(np.full((3, 3), np.inf), 0.5).tolist() == [0, 1, 2]


@given(st.integers(1, 8), st.integers(0, 999), st.floats(0.05, 1))
@settings(max_examples=50, deadline=None)
def test_nobody_merges_across_delta(count: int, seed: int, delta: float) -> None:
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


def test_drifted_clients_start_models_that_merge_by_concept(run_small: Runner) -> None:
    run = run_small(*DRIFT)
    counts = [row["num_clusters"] for row in run.rounds]
    assert counts[:4] == [1, 1, 1, 1]
    assert run.rounds[4]["drifted"] > 0
    assert counts[4] == run.rounds[4]["drifted"] + (run.rounds[4]["drifted"] < 10)
    assert any(row["reclustered"] for row in run.rounds[5:])
    assert run.rounds[-1]["ari"] == 1
    single = run_small(*DRIFT, "strategy=fedavg", folder="single")
    assert run.rounds[-1]["accuracy"] > single.rounds[-1]["accuracy"]


def test_without_drift_there_is_one_model(run_small: Runner) -> None:
    run = run_small(*DRIFT, "drift.rounds=[]", "rounds=4", "participants=5")
    assert {row["num_clusters"] for row in run.rounds} == {1}
    assert {row["drifted"] for row in run.rounds} == {0}
    model = 650 * 4
    assert {row["bytes_down"] for row in run.rounds} == {5 * model}
    assert {row["bytes_up"] for row in run.rounds} == {5 * (model + 4)}


def test_bad_settings_are_one_line() -> None:
    with pytest.raises(ConfigError, match=r"strategy.delta=0 .*above 0"):
        compose_config(["strategy=feddrift", "strategy.delta=0"])
