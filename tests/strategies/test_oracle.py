from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cfl_flower.errors import ConfigError
from simulations.inprocess import InProcessGrid

Runner = Callable[..., Any]


def test_its_clusters_are_the_true_concepts_in_every_round(run_small: Runner) -> None:
    run = run_small("strategy=oracle", "rounds=6", "drift.rounds=[3,5]")
    assert {row["ari"] for row in run.rounds} == {1.0}
    assert [row["reclustered"] for row in run.rounds] == [False, True] * 2 + [False] * 2


def test_a_partial_drift_moves_only_who_drifted(run_small: Runner) -> None:
    run = run_small("strategy=oracle", "drift.fraction=0.25")
    assert {row["ari"] for row in run.rounds} == {1.0}
    assert run.rounds[-1]["num_clusters"] > 3


def test_real_devices_have_no_known_concepts(run_small: Runner) -> None:
    grid = InProcessGrid([{"client-id": i} for i in range(12)])
    with pytest.raises(ConfigError, match="use another strategy on real devices"):
        run_small("strategy=oracle", grid=grid)
