"""Sattler's CFL against its paper."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfl_flower.communication.results import Results
from cfl_flower.types import Result, Vector
from strategies import cfl as method
from strategies.cfl import bipartition, separation
from tests.conftest import open_method

CFL = ["strategy=cfl", "drift.rounds=[]", "participants=12", "strategy.norms=relative"]
EAGER = [*CFL, "strategy.first=1", "strategy.eps1=0.5", "strategy.eps2=0.75"]
"""Splits as soon as it may: the groups' updates all but cancel each other."""


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 999))
@settings(deadline=None, max_examples=30)
def test_clients_with_opposite_updates_are_separated(left, right, seed):
    rng = np.random.default_rng(seed)
    truth = rng.permutation(np.repeat([0, 1], [left, right]))
    angles = np.radians(180 * truth + rng.uniform(-20, 20, len(truth)))
    cosines = np.cos(angles[:, None] - angles)
    sides = bipartition(cosines)
    assert (sides == (truth != truth[0])).all()
    assert 0.9 < separation(cosines, sides) <= 1


def test_separation_by_hand():
    # The nearest two across are 60 degrees apart: sqrt((1 - 1/2) / 2) = 1/2.
    angles = np.radians([0, 30, 90])
    cosines = np.cos(angles[:, None] - angles)
    assert separation(cosines, np.array([0, 0, 1])) == pytest.approx(0.5)
    assert separation(np.ones((3, 3)), np.array([0, 1, 1])) == 0
    assert separation(cosines, np.array([0, 0, 0])) == 0


def test_nested_splits_find_the_concepts(run_small):
    run = run_small(*EAGER, "rounds=8")
    splits = [row["split"] for row in run.rounds]
    assert splits[0] == 0
    assert sum(splits) == run.rounds[-1]["num_clusters"] - 1
    found = [row["num_clusters"] for row in run.rounds]
    # Two levels of splits, and the second one parts clients of the first's.
    assert max(found) >= 3
    first = next(row for row in run.rounds if row["num_clusters"] >= 3)
    assert first["ari"] == 1


def test_gamma_1_prevents_every_split(run_small):
    run = run_small(*EAGER, "strategy.gamma=1", "rounds=6")
    assert {row["num_clusters"] for row in run.rounds} == {1}


def test_relative_bounds_separate_clients_that_disagree(run_small):
    run = run_small(*CFL, "strategy.first=1", "rounds=12")
    assert run.rounds[-1]["num_clusters"] > 1
    # Updates get shorter: the code's 1.6 is out of reach in every round but the first.
    code = [*CFL, "strategy.first=1", "strategy.eps1=0.4", "strategy.eps2=1.6"]
    assert run_small(*code, "rounds=12", folder="code").rounds[-1]["num_clusters"] == 1


def four_at_odds(
    tmp_path: Path, *overrides: str
) -> tuple[method.CFL, dict[int, Result]]:
    """Return CFL, and updates of which the first two are opposite to the others."""
    options = ["strategy=cfl", "strategy.first=0", *overrides]
    options += ["clients=4", "participants=4", "strategy.eps1=0.5", "strategy.eps2=0.5"]
    cfl = open_method(tmp_path, *options)
    cfl.welcome(1, [Result(client, 5) for client in range(4)])
    cfl.state.missed = np.zeros(4, np.int64)
    start = cfl.state.models[0]
    step: Vector = np.zeros_like(start)
    step[0] = 1
    arrays = [start + step, start + step, start - step, start - step]
    return cfl, {row: Result(row, 5, [array]) for row, array in enumerate(arrays)}


@pytest.mark.parametrize(
    ("norms", "scale", "opposite", "split"),
    [
        # The longest is 1, the mean 0, or 1/2 with one opposite update of four.
        ("relative", 1.0, 2, True),
        ("relative", 3.0, 2, False),
        ("absolute", 3.0, 2, True),
        ("relative", 1.5, 1, True),
        ("relative", 0.9, 1, False),
        ("absolute", 1.5, 1, False),
    ],
)
def test_bounds_are_in_the_unit_of_the_norms(norms, scale, opposite, split, tmp_path):
    cfl, found = four_at_odds(tmp_path, f"strategy.norms={norms}")
    if opposite == 1:
        found[2] = found[0]
    cfl.state.scale = scale
    cfl.split_if_due(1, 0, found)
    assert len(cfl.state.models) == 1 + split


def test_a_missing_update_postpones_a_split(tmp_path):
    cfl, found = four_at_odds(tmp_path)
    cfl.split_if_due(1, 0, {row: found[row] for row in (0, 1, 2)})
    assert cfl.state.clusters.tolist() == [0, 0, 0, 0]
    cfl.split_if_due(2, 0, found)
    assert cfl.state.clusters.tolist() == [0, 0, 1, 1]


def test_who_keeps_failing_stops_no_split(tmp_path):
    cfl, found = four_at_odds(tmp_path)
    results = Results([found[row] for row in (0, 1, 2)])
    clusters = []
    for server_round in range(1, method.PATIENCE + 1):
        cfl.absorb_train(server_round, results)
        clusters.append(cfl.state.clusters.tolist())
    assert clusters == [*[[0] * 4] * (method.PATIENCE - 1), [0, 0, 1, 0]]
