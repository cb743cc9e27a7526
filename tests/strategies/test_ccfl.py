from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from cfl_flower.errors import ConfigError, InvalidResultError, NoValidResultError
from cfl_flower.learning.testing import evaluate
from cfl_flower.models import FlatModel
from cfl_flower.types import Result
from strategies.ccfl import (
    above_bar,
    estimate_mixture,
    moving_shares,
    nearness,
    unusual,
)
from strategies.families.soft import damping
from tests.cfl_flower.client.test_node_config import add_samples
from tests.conftest import open_method

CCFL_SMALL = ["strategy=ccfl", "strategy.public=30"]
MIXED = [
    *(*CCFL_SMALL, "participants=12", "partition=mixtures", "partition.clusters=3"),
    *("partition.sizes=[20,40]", "partition.test_samples=10", "drift=mixture_redraw"),
    *("drift.every=1", "drift.first=2", "drift.rounds=[]"),
    *("strategy.stream=cycles", "strategy.arrival=shuffled"),
]
"""The paper's stream: another mixture after every upload, one upload a round."""


def make(tmp_path: Path, *overrides: str) -> Any:
    """Return a strategy of three clusters whose models are single numbers."""
    sizes = ["clients=6", "participants=3", "partition.groups=3"]
    return open_method(tmp_path, *CCFL_SMALL, *sizes, *overrides)


def begin(strategy: Any) -> Any:
    """Let two clients join that resemble all clusters alike, whose models are ready."""
    state = strategy.state
    state.clients, state.clusters = [0, 1], np.zeros(2, np.int64)
    state.shares = np.full((2, 3), 1 / 3)
    state.models = strategy.public.pretrain(strategy.run.initial_model())
    return state


def test_the_mixture_by_hand():
    # l: 1, 3, 0 above the bar of 8: (1 - 1/4)/2 = .375, .125, .5
    # d1: 2, 1, 1: .25, .375, .375; d2, min: 0, 1, 3: .5, .375, .125
    measured = np.array([[9.0, 2.0, 4.0], [11.0, 1.0, 5.0], [8.0, 1.0, 7.0]])
    u = estimate_mixture(measured, (8, 0, "min"), (0.5, 0.25, 0.25), [4.0])
    plain = np.array([0.375, 0.25, 0.375])
    amplified = np.exp(4 * plain) / np.exp(4 * plain).sum()
    assert u == pytest.approx(amplified)
    twice = estimate_mixture(measured, (8, 0, "min"), (0.5, 0.25, 0.25), [4.0, 2.0])
    assert twice == pytest.approx(np.exp(2 * amplified) / np.exp(2 * amplified).sum())


def test_a_bar_over_every_loss_tells_nothing():
    assert nearness(above_bar(np.array([0.5, 2.0]), 8)).tolist() == [0.5, 0.5]
    assert nearness(np.array([3.0])).tolist() == [1.0]


POSITIVE = st.floats(1e-3, 1e3)


@given(
    st.integers(2, 6).flatmap(lambda k: arrays(float, (k, 3), elements=POSITIVE)),
    st.sampled_from(["min", 0.0, 5.0]),
    st.lists(st.floats(0.1, 20), min_size=1, max_size=2),
)
def test_an_estimate_is_a_mixture_and_favours_what_is_near(measured, bar, amplifiers):
    u = estimate_mixture(measured, [bar] * 3, (0.5, 0.25, 0.25), amplifiers)
    assert u.sum() == pytest.approx(1)
    assert (u >= 0).all()
    nearest = (measured <= measured.min(axis=0)).all(axis=1)
    if nearest.any():
        assert u[nearest].min() == pytest.approx(u.max())


def test_update_ratios_by_hand():
    u, lags = np.array([0.5, 0.35, 0.15]), np.array([0.0, 6.0, 0.0])
    ratios = 0.1 * moving_shares(u) * damping(lags, a=10, b=5)
    # The second is above 1/3, but late by 6: 0.7 / 61; the third is below.
    assert ratios == pytest.approx([0.1, 0.1 * 0.7 / 61, 0])
    assert moving_shares(u, bar=0.1) == pytest.approx([1, 0.7, 0.3])
    assert moving_shares(np.full(3, 1 / 3)) == pytest.approx([1] * 3)


def test_unusual_uploads_by_hand():
    history = np.arange(10.0)[:, None, None] * np.ones((10, 2, 3))
    # The 70th percentile of 0 ... 9 is 6.3.
    measured = np.array([[6.0, 6.0, 6.0], [6.0, 6.4, 6.0]])
    assert unusual(measured, history, 70).tolist() == [False, True]
    assert not unusual(measured, history[:0], 70).any()


def test_an_upload_moves_the_clusters_it_is_of(tmp_path):
    strategy = make(tmp_path, "strategy.alpha=0.5", "strategy.amplifiers=[50]")
    state = begin(strategy)
    before, state.epoch = list(state.models), 1
    sent = strategy.reply(1, Result(1, 5, [before[2]], metrics={"stamp": 0}))
    assert state.shares[1].argmax() == state.clusters[1] == 2
    kept = [a is b for a, b in zip(state.models, before, strict=True)]
    assert kept == [True, True, False]
    assert state.updated.tolist() == [0, 0, 1]
    mixed = sum(u * w for u, w in zip(state.shares[1], state.models, strict=True))
    assert sent[0] == pytest.approx(mixed, abs=1e-5)
    assert state.measured.shape == (1, 3, 3)


def test_a_stale_upload_changes_nothing(tmp_path):
    strategy = make(tmp_path, "strategy.tolerance=1.5")
    state = strategy.state
    state.clients, state.clusters = [0, 1], np.zeros(2, np.int64)
    state.models = [np.float32([k]) for k in range(3)]
    state.shares = np.array([[0.2, 0.2, 0.6], [0.5, 0.5, 0.0]])
    state.epoch = 4
    before = list(state.models)
    # Two clients: 4 epochs are 2 cycles.
    sent = strategy.reply(0, Result(0, 5, [np.float32([9])], metrics={"stamp": 0}))
    assert sent[0] == pytest.approx([0.2 + 2 * 0.6])
    assert state.models == before
    assert not len(state.measured)


def test_upload_is_measured_by_losses_gaps_and_distances(tmp_path):
    strategy = make(tmp_path, "strategy.batches=4")
    strategy.state.models = strategy.public.pretrain(strategy.run.initial_model())
    model = 0.5 * strategy.state.models[0] + 0.5 * strategy.state.models[1]
    found = strategy.measure(model)
    network = FlatModel(strategy.run.config.model.build((1, 8, 8), 10))
    for k, public in enumerate(strategy.public.sets):
        x, y = public.x, public.y
        loss, _ = evaluate(network.load(model), x, y)
        own, _ = evaluate(network.load(strategy.state.models[k]), x, y)
        assert found[k, :2] == pytest.approx([4 * loss, abs(4 * own - 4 * loss)])
        apart = np.sqrt(((model - strategy.state.models[k]) ** 2).sum())
        assert found[k, 2] == pytest.approx(apart, rel=1e-5)


def test_clusters_that_others_moved_since_are_moved_less(tmp_path):
    options = ["strategy.alpha=0.5", "strategy.amplifiers=[50]", "strategy.b=2"]
    strategy = make(tmp_path, *options, "strategy.alpha1_bar=0")
    strategy.engine.fleet.discover()
    state = begin(strategy)
    before, upload = list(state.models), state.models[1] + 1
    # The upload is of 8 epochs ago, 4 cycles; cluster 2 was moved 6 after that, 3.
    state.epoch, state.updated = 11, np.array([0, 3, 9])
    strategy.settings = replace(strategy.settings, tolerance=4.0)
    strategy.reply(1, Result(1, 5, [upload], metrics={"stamp": 3}))
    u, late = state.shares[1], 1 / (10 * 3 + 1)
    for k, factor in enumerate((1, 1, late)):
        alpha = 0.5 * u[k] / u.max() * factor
        expected = (1 - alpha) * before[k] + alpha * upload
        assert state.models[k] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("since", "expected"), [("0", [False, True, False]), ("1", [True] * 3)]
)
def test_an_upload_may_be_unusual_for_some_clusters(since, expected, tmp_path):
    adjusted = [f"strategy.adjust_from={since}", "strategy.alpha1_bar=0"]
    strategy = make(tmp_path, *adjusted)
    state = begin(strategy)
    # All before were worse for cluster 1, and better for the others.
    state.measured, state.epoch = np.full((5, 3, 3), 1e-9), 1
    state.measured[:, 1] = 1e9
    before = list(state.models)
    strategy.reply(1, Result(1, 5, [before[0] + 1], metrics={"stamp": 0}))
    moved = [a is not b for a, b in zip(before, state.models, strict=True)]
    assert moved == expected
    assert state.updated.tolist() == expected
    assert len(state.measured) == 6


@pytest.mark.filterwarnings("ignore:overflow")
def test_an_upload_whose_losses_are_not_finite_changes_nothing(tmp_path):
    strategy = make(tmp_path)
    state = begin(strategy)
    before, state.epoch = list(state.models), 1
    # Every weight is a number that may be sent; with images their sums overflow.
    wild = np.full_like(before[0], 1e38)
    with pytest.raises(InvalidResultError, match="not finite"):
        strategy.reply(1, Result(1, 5, [wild], metrics={"stamp": 0}))
    assert all(a is b for a, b in zip(before, state.models, strict=True))
    assert not len(state.measured)
    assert state.shares.ravel().tolist() == [1 / 3] * 6


def test_the_tolerance_is_two_cycles_or_as_many_epochs_as_clients(tmp_path):
    for options, expected in (
        ([], 2),
        (["strategy.staleness=epochs"], 5),
        (["strategy.staleness=epochs", "strategy.tolerance=7"], 7),
    ):
        strategy = make(tmp_path, *options)
        strategy.state.clients = [0, 1, 2, 3, 4]
        assert strategy.tolerance == expected


def test_public_sets_must_be_as_many_as_distributions(tmp_path):
    for name in ("high", "low"):
        add_samples(tmp_path / "public" / name, "all", range(10))
    folder = f"strategy.public_dir={tmp_path / 'public'}"
    with pytest.raises(ConfigError, match=r"public_dir=.*public .* 3 sets, one for"):
        make(tmp_path, folder)


def test_pretraining_does_not_depend_on_the_number_of_cores(tmp_path):
    threads, found = torch.get_num_threads(), []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            strategy = make(tmp_path, "strategy.public=300")
            found.append(strategy.public.pretrain(strategy.run.initial_model()))
            assert torch.get_num_threads() == count
    finally:
        torch.set_num_threads(threads)
    for one, other in zip(*found, strict=True):
        assert one.tobytes() == other.tobytes()


def test_a_pretraining_that_diverges_names_itself(run_small):
    key = "strategy.pretraining.learning_rate"
    with pytest.raises(ConfigError, match=rf"{key}=1e\+38 is not allowed; .*diverged"):
        run_small(*MIXED, f"{key}=1e38")
    # Huge models are no better than infinite ones: no client can answer to them.
    with pytest.raises(NoValidResultError, match="or huge: training diverged"):
        run_small(*MIXED, f"{key}=1e30", folder="huge")


def test_every_client_uploads_once_a_cycle_and_draws_new_data(run_small):
    run = run_small(*MIXED, "rounds=5")
    rounds, clients = run.rounds, run.clients
    for round in range(1, 6):
        rows = [row for row in clients if row["round"] == round]
        assert [row["client"] for row in rows] == list(range(12))
        assert all({"kl", "shares", "before"} <= row.keys() for row in rows)
    assert all(row["stale"] == 0 for row in rounds)
    assert len({tuple(row["shares"]) for row in clients if row["client"] == 3}) == 5
    assert all(row["kl"] > 0 for row in rounds)
    each = rounds[-1]["cluster_accuracies"]
    assert rounds[-1]["cluster_accuracy"] == pytest.approx(np.mean(each))
    # A model and a time stamp each way; the first time two models down.
    size = 650 * 4 + 8
    assert {row["bytes_up"] for row in rounds} == {12 * size}
    assert [row["bytes_down"] // size for row in rounds] == [24, 12, 12, 12, 12]
