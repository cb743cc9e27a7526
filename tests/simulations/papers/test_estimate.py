from __future__ import annotations

import numpy as np
import pytest

from cfl_flower.config.compose import compose_config
from cfl_flower.server_app import open_stream
from simulations.papers import estimate
from simulations.papers.estimate import count_work, estimate_seconds, time_step

SETTINGS = ["clients=8", "participants=4", "rounds=6", "strategy.local.epochs=3"]


def test_work_is_that_of_a_round_of_mean_clients() -> None:
    config = compose_config(SETTINGS)
    stream = open_stream(config)
    views = [stream.view(client, 1) for client in range(8)]
    batch = config.strategy.local.batch_size
    steps = [3 * -(-len(view.labels) // batch) for view in views]
    tests = sum(len(view.test_labels) for view in views)
    work = count_work(config)
    assert (work.steps, work.tests) == (pytest.approx(4 * np.mean(steps)), tests)
    assert work.batch <= batch


def test_a_full_batch_is_no_longer_than_the_clients_samples() -> None:
    config = compose_config([*SETTINGS, "strategy.local.batch_size=10000"])
    stream = open_stream(config)
    sizes = [len(stream.view(client, 1).labels) for client in range(8)]
    assert count_work(config).batch == round(np.mean(sizes))
    assert count_work(config).steps == 4 * 3


def test_samples_that_all_test_count_once() -> None:
    config = compose_config([*SETTINGS, "partition.tests=whole"])
    whole = len(open_stream(config).view(0, 1).test_pool.labels)
    assert count_work(config).tests == whole


def test_an_estimate_is_steps_and_tests_of_all_rounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = compose_config([*SETTINGS, "system.evaluate_every=2"])
    assert min(time_step(config, 10)) > 0
    monkeypatch.setattr(estimate, "time_step", lambda _, batch: (2.0, 0.5))
    work = count_work(config)
    expected = 6 * work.steps * 2 + 3 * work.tests * 0.5
    assert estimate_seconds(config) == pytest.approx(expected)
