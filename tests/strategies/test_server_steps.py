"""Methods of one model whose server takes a step of its own, against their papers."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from cfl_flower.data.worlds.stream import Stream
from cfl_flower.engine.method import no_clusters
from cfl_flower.errors import NoValidResultError
from cfl_flower.learning.aggregation import mean_model
from cfl_flower.learning.testing import evaluate
from cfl_flower.learning.training import train
from cfl_flower.models import FlatModel, build_model
from cfl_flower.seeding import generator
from cfl_flower.types import Result
from clients.scaffold import control_change
from strategies.adapfedavg import AdapFedAvgSettings, AdapFedAvgState, adapt_rate
from strategies.flash import FlashSettings, flash_step
from tests.conftest import open_method

# FedAvg


@pytest.mark.parametrize("weighting", ["samples", "plain"])
def test_fedavg_equals_a_plain_loop_to_the_bit(weighting, run_small):
    own = ["strategy=fedavg", f"strategy.weighting={weighting}"]
    run = run_small(*own, "clients=8", "participants=3")
    config = run.config
    dataset = config.dataset
    stream = Stream(dataset, config.partition, config.drift, 8, 0, config.rounds)
    weights = build_model(config.model, dataset.shape, dataset.classes, 0).to_vector()
    model = FlatModel(config.model.build(dataset.shape, dataset.classes))
    for round in range(1, config.rounds + 1):
        chosen = generator(0, "selection", round).choice(8, 3, replace=False)
        results, counts = [], []
        for client in sorted(chosen.tolist()):
            x, y = stream.view(client, round).train()
            batches = generator(0, "batches", round, client)
            train(model.load(weights), x, y, config.strategy.local, batches)
            results.append(model.to_vector())
            counts.append(float(len(y)) if weighting == "samples" else 1.0)
        weights = mean_model(results, counts)
        tests = [
            evaluate(model.load(weights), *stream.view(client, round).test())
            for client in range(8)
        ]
        row = run.rounds[round - 1]
        tested = sum(len(stream.view(c, round).test_indices) for c in range(8))
        assert row["accuracy"] == sum(correct for _, correct in tests) / tested
    assert np.array_equal(run.state.models[0], weights)


def test_a_fine_tuned_model_knows_its_clients_labels(run_small):
    still = ["drift.rounds=[]", "strategy.fine_tuning_rate=0.1"]
    tuned = run_small("strategy=fedavg_ft", *still, folder="tuned")
    plain = run_small("strategy=fedavg", *still, folder="plain")
    # Clients hold mostly a third of the labels: a tuned model is far better.
    assert tuned.rounds[-1]["accuracy"] > plain.rounds[-1]["accuracy"] + 0.1


# AdapFedAvg


ADAPTIVE = AdapFedAvgSettings(beta1=0.7, beta2=0.3, beta3=0.7)


def fresh(weights: int) -> AdapFedAvgState:
    return AdapFedAvgState([], no_clusters(), [], mean=np.zeros(weights, np.float32))


def test_two_rounds_by_hand():
    state = fresh(2)
    adapt_rate(state, np.float32([1, 3]), ADAPTIVE)
    # v = 0.7 * (1 + 9) / 2 = 3.5, corrected 5; ratio 1.
    assert state.mean == pytest.approx([0.3, 0.9])
    assert (state.variance, state.share) == pytest.approx((3.5, 1))
    adapt_rate(state, np.float32([2, 4]), ADAPTIVE)
    # The average, corrected, was (1, 3): distance 1; v = 0.3 * 3.5 + 0.7, corrected
    # 1.75 / 0.91; ratio 0.7 * 0.3 + 0.3 * (1.75 / 0.91 / 5), corrected by 1 - 0.49.
    growth = 1.75 / 0.91 / 5
    assert state.variance == pytest.approx(1.75)
    assert state.ratio == pytest.approx(0.21 + 0.3 * growth)
    assert state.share == pytest.approx(state.ratio / 0.51 / 2)


def test_a_model_that_stands_still_is_no_division_by_zero():
    state = fresh(1)
    for _ in range(5):
        adapt_rate(state, np.float32([0]), ADAPTIVE)
        assert 0 < state.share <= 1


def test_the_rate_decays_and_drift_raises_it(run_small):
    options = ["strategy=adapfedavg", "rounds=14", "participants=12"]
    steady = run_small(*options, "drift.rounds=[]", folder="steady").rounds
    drift = ["partition.purity=1", "drift.rounds=[8]"]
    drifting = run_small(*options, *drift, folder="drifting").rounds
    assert steady[0]["learning_rate"] == 0.1
    rates = [row["learning_rate"] for row in steady]
    assert rates[-1] < 0.1 * rates[0]
    after = [row["learning_rate"] * row["round"] for row in drifting]
    assert max(after[8:11]) > 1.2 * after[7]


# Flash


FLASH = FlashSettings()


def test_a_step_by_hand():
    moments = [np.array([0.5]), np.array([4.0]), np.array([1.0])]
    model, (m, v, d) = flash_step(np.array([10.0]), np.array([3.0]), moments, FLASH)
    assert m == pytest.approx([0.75])
    assert v == pytest.approx([4.05])
    share = 4 / (9 - 4.05 + 4)
    assert d == pytest.approx([share + (1 - share) * 4.95])
    assert model == pytest.approx(10 + 0.0075 / (np.sqrt(4.05) - d + 0.001))


def test_the_guard_keeps_steps_finite_and_in_the_right_direction():
    # d above sqrt(v): as published, the step goes the wrong way.
    moments = [np.array([1.0]), np.array([0.01]), np.array([5.0])]
    wrong, _ = flash_step(np.zeros(1), np.ones(1), moments, FLASH)
    guarded, _ = flash_step(
        np.zeros(1), np.ones(1), moments, replace(FLASH, guard=True)
    )
    assert wrong < 0 < guarded
    assert guarded == pytest.approx([0.01 * 1.0 / 0.001])


@pytest.mark.parametrize("name", ["flash", "adapfedavg"])
def test_running_statistics_are_averaged_and_measure_nothing(name, tmp_path):
    options = [f"strategy={name}", "model=shufflenet_v2", "dataset.size=9"]
    strategy = open_method(tmp_path, *options)
    strategy.state.clients, strategy.state.clusters = [0, 1], np.zeros(2, np.int64)
    (before,), count = strategy.state.models, strategy.run.weights
    assert 0 < count < len(before)
    statistics = np.linspace(1, 2, len(before) - count, dtype=np.float32)
    same = np.concatenate([before[:count], statistics])
    strategy.absorb_train(1, [Result(0, 5, [same]), Result(1, 5, [same])])
    (after,) = strategy.state.models
    # What does not change has no step, whatever the statistics do.
    assert np.array_equal(after[:count], before[:count])
    assert after[count:] == pytest.approx(statistics)
    other = np.concatenate([before[:count] + 1, statistics])
    strategy.absorb_train(2, [Result(0, 5, [other])])
    assert not np.array_equal(strategy.state.models[0][:count], before[:count])
    assert strategy.state.models[0][count:] == pytest.approx(statistics)


@pytest.mark.filterwarnings("ignore:overflow")
def test_a_model_that_diverged_at_the_server_is_not_blamed_on_clients(run_small):
    with pytest.raises(NoValidResultError, match="received is not finite itself"):
        run_small("strategy=flash", "strategy.server_rate=1e45")


# pFedMe


ME = ["strategy=pfedme", "drift.rounds=[]", "participants=12"]


def models(run: Any, client: int = 0) -> np.ndarray:
    """Return the model that a client keeps."""
    path = sorted(Path(run.folder, "clients", str(client)).glob("*.safetensors"))[-1]
    return load_file(path)["model"]


def test_the_copy_moves_a_little_towards_the_personal_model(run_small):
    # One batch: w_i = w + eta lambda (theta - w).
    once = ["rounds=1", "strategy.local.batch_size=500", "strategy.attraction=2"]
    local = models(run_small(*ME, *once, "strategy.tested=local", folder="local"))
    personal = models(kept := run_small(*ME, *once, folder="personal"))
    start = build_model(kept.config.model, (1, 8, 8), 10, 0).to_vector()
    assert local - start == pytest.approx(0.01 * 2 * (personal - start), abs=1e-7)


@pytest.mark.parametrize("beta", [0.25, 1.0, 2.0])
def test_the_server_moves_by_beta_towards_the_mean(beta, tmp_path):
    method = open_method(tmp_path, "strategy=pfedme", f"strategy.beta={beta}")
    length = len(method.state.models[0])
    method.state.models = [np.full(length, 4, np.float32)]
    results = [Result(n, 1, [np.full(length, n, np.float32)]) for n in (9, 15)]
    method.absorb_train(1, results)
    assert method.state.models[0] == pytest.approx(4 + beta * (12 - 4))


# SCAFFOLD


def test_the_change_of_a_control_by_hand():
    # From 3 to 1 in 4 steps of 0.1: a mean gradient of 5.
    control, start, end = np.float32([2]), np.float32([3]), np.float32([1])
    assert control_change(control, start, end, 4, 0.1) == pytest.approx([3])


@pytest.mark.parametrize("rounds", [1, 3])
def test_the_servers_control_is_the_mean_of_all_clients_controls(rounds, run_small):
    # With c = c_i = 0 at first, and 0 still for those who took no part.
    options = ["strategy=scaffold", "drift.rounds=[]", "participants=6"]
    run = run_small(*options, "strategy.local.batch_size=500", f"rounds={rounds}")
    folders = Path(run.folder, "clients").glob("*/control")
    newest = [max(folder.glob("*.safetensors")) for folder in folders]
    own = np.stack([load_file(file)["own"] for file in newest])
    assert own.shape[1] == 650
    assert len(own) == 6 if rounds == 1 else 6 < len(own) < 12
    assert run.state.control == pytest.approx(own.sum(axis=0) / 12, abs=1e-6)


def test_the_server_goes_its_rate_of_the_way(run_small):
    options = ["strategy=scaffold", "participants=12", "rounds=1"]
    found = []
    for rate in (0.5, 1):
        run = run_small(*options, f"strategy.global_rate={rate}", folder=str(rate))
        found.append(run.state.models[0])
        assert run.rounds[0]["loss"] < np.log(10), "along the update, not against it"
    start = build_model(run.config.model, (1, 8, 8), 10, 0).to_vector()
    assert found[0] == pytest.approx((start + found[1]) / 2, abs=1e-6)


CLIENTS = 8
FAR = 1024.0
"""Added to all weights of all models; the updates are exact beside it."""

METHODS = {
    "auxo": ["strategy.split_rounds=[2]", "strategy.smallest=2"],
    # Their true cosines are -1: nothing that is less may pass for them.
    "cfl": [
        *("strategy.first=0", "strategy.norms=relative", "strategy.gamma=0.9"),
        *("strategy.eps1=0.5", "strategy.eps2=0.75"),
    ],
    "fesem": ["clusters=3"],
    "flash": [],
    "pfedme": ["strategy.beta=0.5"],
    "fedavg": ["server_optimizer=yogi"],
}


def updates(length: int) -> np.ndarray:
    """Return updates of which the odd ones are opposite to the even ones, (n, d)."""
    rng = np.random.default_rng(0)
    # Halves and quarters: exact beside `FAR`.
    steps = rng.integers(-8, 9, length) / 4
    signs = np.where(np.arange(CLIENTS) % 2, -1, 1)
    return np.outer(signs, steps).astype(np.float32)


def after_two_rounds(folder: Path, name: str, offset: float) -> Any:
    """Return the state of a method whose clients trained models with an offset."""
    options = [f"strategy={name}", f"clients={CLIENTS}", f"participants={CLIENTS}"]
    method = open_method(folder, *options, *METHODS[name])
    method.engine.context.begin(1)
    method.welcome(1, [Result(client, 5) for client in range(CLIENTS)])
    state = method.state
    # Rounded, so that an offset takes nothing of them away.
    state.models = [
        np.round(16 * each) / 16 + np.float32(offset) for each in state.models
    ]
    for number in (1, 2):
        method.engine.context.begin(number)
        plan = method.plan_train(number)
        found = updates(len(state.models[0]))
        results = [
            Result(task.client, 5, [plan.models[task.models[0]] + found[task.client]])
            for task in plan.tasks
        ]
        method.absorb_train(number, method.engine.delivery.read("train", results))
    return state


@pytest.mark.parametrize("name", METHODS)
def test_models_far_from_zero_are_clustered_and_moved_alike(name, tmp_path):
    near, far = (after_two_rounds(tmp_path / str(o), name, o) for o in (0.0, FAR))
    assert far.clusters.tolist() == near.clusters.tolist()
    assert len(far.models) == len(near.models)
    for one, other in zip(near.models, far.models, strict=True):
        np.testing.assert_allclose(other - np.float32(FAR), one, atol=2e-3)
    if name in ("auxo", "cfl"):
        assert len(set(far.clusters.tolist())) == 2
