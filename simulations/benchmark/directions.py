"""FlexCFL's group cold start."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.metrics.pairwise import cosine_similarity
from threadpoolctl import threadpool_limits

from cfl_flower.clustering.similarity import decomposed_cosines
from cfl_flower.types import Vector
from simulations.benchmark import measure as bench


def rows() -> Iterator[bench.Row]:
    """Time FlexCFL's group cold start, against the randomised SVD of its code."""
    for count, length, limit in ((1000, 101_770, 1.5), (100, 11_200_000, 4.0)):
        taken, memory = bench.in_process(_measure_directions, count, length)
        what = f"EDC of {count:,} updates x {length:,} parameters"
        yield bench.within(f"{what}, one thread", taken.wall, limit, "s", str(taken))
        if count * length > 10**9:
            yield bench.within(f"{what}, memory / updates", memory, 1.2, "x")
    updates = _random_updates(1000, 650)

    def by_svd() -> None:
        matrix = np.stack(updates)
        axes = TruncatedSVD(5, random_state=0).fit_transform(matrix.T)
        cosine_similarity(matrix, axes.T)

    with threadpool_limits(limits=1):
        edc, svd = bench.measure(lambda: decomposed_cosines(updates, 5), by_svd)
    yield bench.compare("EDC of 1,000 x 650, against a randomised SVD", edc, svd, 1)


def _random_updates(count: int, length: int) -> list[Vector]:
    """Return updates around five directions."""
    rng = np.random.default_rng(0)
    bases = rng.standard_normal((5, length), np.float32)
    return [
        bases[i % 5] + rng.standard_normal(length, np.float32) for i in range(count)
    ]


def _measure_directions(count: int, length: int) -> tuple[bench.Seconds, float]:
    """Return the time of EDC, and the peak memory in multiples of the updates'."""
    before = bench.resident_bytes()
    updates = _random_updates(count, length)
    (taken,) = bench.measure(lambda: decomposed_cosines(updates, 5), count=1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    return taken, peak / (count * length * 4)
