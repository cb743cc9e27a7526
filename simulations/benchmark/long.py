"""A long run of a small model, in process."""

from __future__ import annotations

from collections.abc import Iterator

from simulations.benchmark import measure as bench

RUN = """
    strategy=fedavg engine=inprocess drift=none dataset.size=28 clients=1000
    participants=20 partition.samples=40 partition.test_samples=13
    strategy.local.steps=60 system.evaluate_every=10 system.checkpoint_every=10
    rounds=300
"""


def rows() -> Iterator[bench.Row]:
    """Time 300 rounds of a small model in process."""
    (taken,) = bench.measure(lambda: bench.finish(RUN), count=1)
    name = "in process: 300 rounds x 20 clients x 60 steps, 7,850 parameters"
    yield bench.within(name, taken.wall, 60, "s", str(taken))
