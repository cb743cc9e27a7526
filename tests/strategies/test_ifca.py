from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfl_flower.data.worlds.stream import Stream
from cfl_flower.errors import InvalidResultError
from cfl_flower.learning.testing import evaluate
from cfl_flower.models import FlatModel
from cfl_flower.server_app import open_stream
from cfl_flower.types import Result
from strategies.families.choosing import ChoosingState
from strategies.ifca import IFCA
from tests.conftest import open_method

IFCA_RUN = ["strategy=ifca", "clusters=3"]
SHIFT = ["drift=swap_all", "drift.every=null", "drift.rounds=[4]"]
SHIFT += ["drift.probability=1"]


def ifca(tmp_path: Path) -> IFCA:
    """Return IFCA with four clients and three models of one number, by hand."""
    options = [*IFCA_RUN, "clients=4", "participants=4", "drift=none"]
    strategy: IFCA = open_method(tmp_path, *options)
    state = strategy.state
    state.clients, state.clusters = [0, 1, 2, 3], np.array([0, 0, 1, 2])
    state.models = [np.float32([value]) for value in (1, 2, 4)]
    return strategy


def ended(run: Any) -> tuple[ChoosingState, Stream, FlatModel]:
    """Return what a run ended with, its data, and its network."""
    config = run.config
    dataset = config.dataset
    model = FlatModel(config.model.build(dataset.shape, dataset.classes))
    return run.state, open_stream(config), model


def test_participants_are_averaged_plainly_in_their_chosen_cluster(tmp_path):
    strategy = ifca(tmp_path)
    results = [
        Result(0, 90, [np.float32([6])], report=1),
        Result(1, 10, [np.float32([2])], report=1),
        Result(3, 10, [np.float32([9])], report=0),
    ]
    strategy.absorb_train(1, results)
    assert [float(model[0]) for model in strategy.state.models] == [9, 4, 4]
    assert strategy.state.clusters.tolist() == [1, 1, 1, 0]


def test_moves_in_training_and_by_migration_are_added_up(tmp_path):
    strategy = ifca(tmp_path)
    strategy.settings = replace(strategy.settings, migration=True)
    strategy.state.chosen = np.zeros(4, np.int64)
    strategy.absorb_train(1, [Result(0, 9, [np.float32([6])], report=1)])
    strategy.absorb_evaluate(1, [Result(1, 0, report=2), Result(2, 0, report=1)])
    assert strategy.run.record.moved == 2


def test_a_trained_model_without_a_choice_is_refused(tmp_path):
    with pytest.raises(InvalidResultError, match="cluster=None"):
        ifca(tmp_path).read_result("train", Result(0, 5, [np.float32([6])]))


def test_clients_are_tested_with_their_chosen_model(run_small):
    run = run_small(*IFCA_RUN, "drift=none", "participants=12", "rounds=8")
    state, stream, model = ended(run)
    for row in (row for row in run.clients if row["round"] == 8):
        served = state.models[row["cluster"]]
        _, correct = evaluate(model.load(served), *stream.view(row["client"], 8).test())
        assert row["accuracy"] == correct / row["num_examples"]


def test_migration_fetches_all_models_for_those_whose_data_shifted(run_small):
    options = [*IFCA_RUN, *SHIFT, "rounds=5"]
    plain = run_small(*options, folder="plain")
    moving = run_small(*options, "strategy.migration=true", folder="moving")
    assert plain.rounds[2]["drifted"] is None
    drifted = moving.rounds[2]["drifted"]
    assert drifted > 0
    extra = moving.rounds[2]["bytes_down"] - plain.rounds[2]["bytes_down"]
    assert extra == drifted * 3 * 650 * 4
    assert [row["drifted"] for row in moving.rounds] == [0, 0, drifted, 0, 0]


def test_clients_can_choose_anew_for_each_test(run_small):
    # In the first round of a drift nobody has chosen by the new data but participants.
    options = [*IFCA_RUN, "drift=sudden", "drift.rounds=[12]", "rounds=13"]
    options += ["partition.purity=0", "participants=4", "strategy.local.epochs=5"]
    last = run_small(*options, folder="last")
    best = run_small(*options, "strategy.tested=best", folder="best")
    for same in ("bytes_down", "cluster_sizes"):
        assert [r[same] for r in last.rounds] == [r[same] for r in best.rounds]
    model_of = {row["client"]: row["cluster"] for row in last.clients}
    assert len(set(model_of.values())) > 1
    # The same but for rounding where everybody chose its model already.
    assert best.rounds[-1]["loss"] <= last.rounds[-1]["loss"] + 1e-6


def test_with_secure_sums_participants_choose_before_they_train(run_small):
    options = ["strategy=ifca", "clusters=2", "clients=30", "participants=24"]
    options += ["drift=none", "rounds=3"]
    plain = run_small(*options, folder="plain")
    sums = run_small(*options, "privacy.secure_sums=true", folder="sums")
    assert [row["left_out"] for row in sums.rounds] == [0] * 3
    for one, other in zip(sums.rounds, plain.rounds, strict=True):
        assert one["cluster_sizes"] == other["cluster_sizes"]
        assert one["moved"] == other["moved"]
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-4)
        # Beside all models, the chosen one once more.
        assert one["bytes_down"] == other["bytes_down"] + 24 * 650 * 4


@pytest.mark.parametrize(
    "more", [["strategy.migration=true"], ["strategy.tested=best"]]
)
def test_choices_of_any_kind_go_with_secure_sums(more, run_small):
    options = [*IFCA_RUN, *SHIFT, *more, "rounds=5"]
    run = run_small(*options, "privacy.secure_sums=true", "privacy.least_members=2")
    assert not run.failures
