"""A long run of a small model, in process."""

from __future__ import annotations

import time
from collections.abc import Iterator

from simulations.benchmark.measure import Row, finish


def rows() -> Iterator[Row]:
    """Time 300 rounds of a small model in process."""
    overrides = [
        "strategy=fedavg",
        "engine=inprocess",
        "drift=none",
        "dataset.size=28",
        "clients=1000",
        "participants=20",
        "partition.samples=40",
        "partition.test_samples=13",
        "strategy.local.steps=60",
        "system.evaluate_every=10",
        "system.checkpoint_every=10",
        "rounds=300",
    ]
    start = time.perf_counter()
    finish(overrides)
    seconds = time.perf_counter() - start
    yield Row(
        "in process: 300 rounds x 20 clients x 60 steps, 7,850 parameters",
        f"{seconds:.1f} s",
        "60 s",
        seconds <= 60,
    )
