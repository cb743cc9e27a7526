"""Noise on label histograms: its scale, what it leaves alone, what a run does."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfl_flower.client.context import ClientContext, ClientState
from cfl_flower.client.drift_report import protect
from cfl_flower.client.node_config import NodeConfig
from cfl_flower.clustering.representations import chance_explains, check_histogram
from clients.base import ClusteredClient
from strategies.fielding import FieldingSettings
from strategies.fielding.report_noise import LaplaceNoise, NoNoise

NOISY = ["strategy=fielding", "strategy/privacy=laplace"]


def test_laplace_noise_has_the_scale_that_two_changed_counts_need():
    assert LaplaceNoise(epsilon=0.5).scale == 4
    assert LaplaceNoise(epsilon=0.5).variances(np.array([9, 60])).tolist() == [32, 32]
    assert not NoNoise().variances(np.array([9])).any()


def test_counts_are_off_by_the_scale():
    noise, labels, each = LaplaceNoise(epsilon=0.2), 4000, 1000
    histogram = np.full(labels, 1 / labels, np.float32)
    noisy = noise.protect(histogram, labels * each, np.random.default_rng(0))
    off = noisy.astype(float) * labels * each - each
    assert off.std() == pytest.approx(noise.scale * 2**0.5, rel=0.05)
    assert abs(off.mean()) < noise.scale / 10


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=20).filter(any),
    st.floats(1e-3, 1e3),
    st.integers(0, 99),
)
def test_a_noisy_histogram_is_a_distribution(counts, epsilon, seed):
    total = sum(counts)
    histogram = (np.array(counts) / total).astype(np.float32)
    rng = np.random.default_rng(seed)
    noisy = LaplaceNoise(epsilon).protect(histogram, total, rng)
    check_histogram(noisy)
    assert np.isfinite(noisy).all()
    assert noisy.shape == histogram.shape


def test_without_samples_nothing_changes():
    histogram = np.float32([0.5, 0.5])
    context: Any = SimpleNamespace(settings=FieldingSettings(privacy=LaplaceNoise()))
    assert protect(context, histogram, 0) is histogram
    assert NoNoise().spent(np.array([3])) == {}


def test_noise_alone_makes_no_groups():
    noise, counts = LaplaceNoise(epsilon=1), np.full(30, 60)
    rng = np.random.default_rng(1)
    drawn = (rng.multinomial(60, np.full(5, 0.2), 30) / 60).astype(np.float32)
    noisy = np.stack([noise.protect(each, 60, rng) for each in drawn])
    assert not chance_explains(noisy, counts, 0.001)
    assert chance_explains(noisy, counts, 0.001, noise.variances(counts))
    noisy[:10] = noisy[:10][:, ::-1] * [0, 0, 0, 1, 4]
    noisy /= noisy.sum(axis=1, keepdims=True)
    assert not chance_explains(noisy, counts, 0.001, noise.variances(counts))


def device(root: Path, folder: Path | None, seed: int = 0) -> ClusteredClient:
    """Return a client that reports with noise; with a folder it is a real device."""
    nothing: Any = None
    settings = FieldingSettings(privacy=LaplaceNoise(epsilon=1))
    state = ClientState(root, "a")
    root.mkdir(exist_ok=True)
    node = NodeConfig("a", "", str(root))
    context = ClientContext(
        "a", 1, seed, nothing, nothing, nothing, settings, state, nothing, folder=folder
    )
    context.secret = node.noise_secret if folder else None
    return ClusteredClient(context)


def test_a_real_devices_noise_does_not_follow_from_the_seed(tmp_path):
    histogram = np.full(10, 0.1, np.float32)

    def report(root: str, own: bool, count: int = 100) -> list[float]:
        client = device(tmp_path / root, tmp_path if own else None)
        return protect(client.context, histogram, count).tolist()

    assert report("one", own=True) == report("one", own=True)
    assert report("one", own=True) != report("two", own=True)
    assert report("one", own=True) != report("one", own=False)
    # Other data have other noise.
    assert report("one", own=True) != report("one", own=True, count=101)
    # A simulation repeats itself, wherever it is.
    assert report("one", own=False) == report("two", own=False)


def test_a_client_with_unchanged_data_reports_once(run_small):
    run = run_small(*NOISY)
    assert [row["drifted"] for row in run.rounds] == [0, 12, 0, 0]
    assert [row["epsilon_spent"] for row in run.rounds] == [1, 2, 2, 2]
    static = run_small("strategy=static", NOISY[1], folder="static")
    assert [row["epsilon_spent"] for row in static.rounds] == [1, 1, 1, 1]
