"""FlexCFL's group cold start, and sketches."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.metrics.pairwise import cosine_similarity
from threadpoolctl import threadpool_limits

from cfl_flower.clustering.similarity import cosine_matrix, decomposed_cosines, sketch
from cfl_flower.types import Vector
from simulations.benchmark import measure as bench


def rows() -> Iterator[bench.Row]:
    """Time FlexCFL's group cold start, against the randomised SVD of its code."""
    for count, length, limit in ((1000, 101_770, 1.5), (100, 11_200_000, 4.0)):
        with ProcessPoolExecutor(1, get_context("spawn")) as worker:
            taken, memory = worker.submit(_measure_directions, count, length).result()
        what = f"EDC of {count:,} updates x {length:,} parameters"
        yield bench.within(f"{what}, one thread", taken.wall, limit, "s", str(taken))
        if count * length > 10**9:
            yield bench.within(f"{what}, memory / updates", memory, 1.2, "x")
    updates = _random_updates(60, 101_770)
    exact = cosine_matrix(updates)
    for dimension in (256, 1024, 4096):
        sketches = [sketch(update, dimension, 0) for update in updates]
        error = float(np.sqrt(np.square(cosine_matrix(sketches) - exact).mean()))
        what = f"sketch of {dimension:,} for 101,770: mean error of a cosine"
        yield bench.within(what, error, float(np.sqrt(2 / dimension)), "")
    for count, length in ((1000, 650), (100, 610), (1000, 7850)):
        what = f"EDC of {count:,} x {length:,}, against a randomised SVD"
        yield bench.compare(what, *_compare_directions(count, length), 1)


def _random_updates(count: int, length: int) -> list[Vector]:
    """Return updates around five directions."""
    rng = np.random.default_rng(0)
    bases = rng.standard_normal((5, length), np.float32)
    return [
        bases[i % 5] + rng.standard_normal(length, np.float32) for i in range(count)
    ]


def _measure_directions(count: int, length: int) -> tuple[bench.Seconds, float]:
    """Return the time of EDC, and the peak memory in multiples of the updates'."""
    before = bench.resident_pages() * resource.getpagesize()
    updates = _random_updates(count, length)
    (taken,) = bench.measure(lambda: decomposed_cosines(updates, 5), count=1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    return taken, peak / (count * length * 4)


def _compare_directions(count: int, length: int) -> tuple[bench.Seconds, bench.Seconds]:
    """Return the time of EDC, and of a randomised SVD."""
    updates = _random_updates(count, length)

    def by_svd() -> None:
        matrix = np.stack(updates)
        axes = TruncatedSVD(5, random_state=0).fit_transform(matrix.T)
        cosine_similarity(matrix, axes.T)

    def by_edc() -> None:
        decomposed_cosines(updates, 5)

    with threadpool_limits(limits=1):
        edc, svd = bench.measure(by_edc, by_svd, count=5)
    return edc, svd
