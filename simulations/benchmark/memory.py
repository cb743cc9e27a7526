"""The peak memory of the server of a large fleet."""

from __future__ import annotations

from collections.abc import Iterator

from simulations.benchmark.measure import Row, finish


def rows() -> Iterator[Row]:
    """Take the peak memory of the server process of a large fleet."""
    overrides = [
        "strategy=fielding",
        "drift=none",
        "dataset.size=28",
        "model=mlp",
        "model.hidden=128",
        "clients=5000",
        "participants=500",
        "partition.samples=40",
        "partition.test_samples=13",
        "strategy.local.epochs=1",
        "workers=2",
        "rounds=3",
    ]
    peak = finish(overrides).summary["peak_rss_mb"]
    yield Row(
        "server, 5,000 clients, 500 participants, 101,770 parameters: peak memory",
        f"{peak / 1000:.2f} GB",
        "1.5 GB",
        peak <= 1500,
    )
