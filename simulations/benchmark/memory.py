"""The peak memory of the server of a large fleet."""

from __future__ import annotations

from collections.abc import Iterator

from simulations.benchmark import measure as bench

RUN = """
    strategy=fielding drift=none dataset.size=28 model=mlp model.hidden=128
    clients=5000 participants=500 partition.samples=40 partition.test_samples=13
    strategy.local.epochs=1 workers=2 rounds=3
"""


def rows() -> Iterator[bench.Row]:
    """Measure the peak memory of the server process of a large fleet."""
    peak = bench.finish(RUN).summary["peak_rss_mb"] / 1000
    name = "server, 5,000 clients, 500 participants, 101,770 parameters: peak memory"
    yield bench.within(name, peak, 1.5, "GB")
