"""Clients that choose their cluster, and what the server makes of it."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from cfl_flower.client.context import ClientState
from cfl_flower.config.compose import compose_config
from cfl_flower.errors import ConfigError
from cfl_flower.types import Result
from strategies.families.choosing import ShiftTest
from tests.conftest import open_method

BEFORE = np.array([50, 50, 0, 0])
"""Label counts of a client when it chose."""


# FeSEM


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


def test_with_secure_sums_the_model_trained_last_chooses(run_small):
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


# FedEM


WHOLE = ["strategy.local.batch_size=999", "participants=12", "drift.rounds=[]"]


@pytest.mark.slow
@pytest.mark.whole
def test_each_concept_finds_a_component_of_its_own(run_small):
    concepts = ["partition.groups=1", "drift=sudden", "drift.rounds=[2]"]
    options = [*concepts, "participants=12", "rounds=20", "strategy.local.epochs=10"]
    run = run_small("strategy=fedem", *options)
    chosen = []
    for client in range(12):
        (*_, last) = sorted(Path(run.folder, "clients", str(client)).glob("*.safe*"))
        mixture = load_file(last)["mixture"]
        assert mixture.sum() == pytest.approx(1)
        assert mixture.max() > 0.4
        chosen.append(int(mixture.argmax()))
    # By the last digit of a client's number: 0 to 2, 3 to 5, 6 to 9.
    groups = [chosen[0:3] + chosen[10:12], chosen[3:6], chosen[6:10]]
    assert [len(set(group)) for group in groups] == [1, 1, 1]
    assert len(set(chosen)) == 3
    fedavg = run_small("strategy=fedavg", *options, folder="fedavg")
    assert run.rounds[-1]["accuracy"] > fedavg.rounds[-1]["accuracy"] + 0.05


def test_privacy_accounts_for_three_components():
    options = ["strategy=fedem", "privacy=central", "strategy.weighting=plain"]
    assert compose_config(options).strategy.components == 3
    with pytest.raises(ConfigError, match="3 with privacy=, whose account"):
        compose_config([*options, "strategy.components=2"])


@pytest.mark.parametrize(
    ("current", "shifted"),
    [
        ([50, 50, 0, 0], False),
        # 10 of 100 samples replaced: an L1 change of 20, not above 20%.
        ([40, 50, 10, 0], False),
        ([40, 49, 11, 0], True),
        # A fifth of the 100 samples before, not of the 121 of now.
        ([71, 50, 0, 0], True),
        # A quarter of the samples has gone, and nothing else.
        ([40, 35, 0, 0], True),
        ([0, 0, 50, 50], True),
        ([0, 0, 0, 0], True),
    ],
)
def test_a_change_of_more_than_a_fifth_of_the_samples_is_a_shift(current, shifted):
    assert ShiftTest().detects(np.array(current), BEFORE) is shifted


@given(st.permutations([60, 30, 10, 0, 0]))
def test_the_reference_metric_sees_sizes_and_not_which_labels_they_are_of(counts):
    before = np.array([60, 30, 10, 0, 0])
    reference = ShiftTest(metric="reference")
    assert not reference.detects(np.array(counts), before)
    # Sorted: 0 0 50 50 against 0 0 30 30, a mean difference of 10 > 5.
    assert reference.detects(np.array([30, 30, 0, 0]), BEFORE)
    moved = int(np.abs(np.array(counts) - before).sum())
    assert ShiftTest().detects(np.array(counts), before) is (moved > 20)
