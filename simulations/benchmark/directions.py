"""FlexCFL's group cold start, and sketches."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from statistics import median

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.metrics.pairwise import cosine_similarity
from threadpoolctl import threadpool_limits

from cfl_flower.clustering.similarity import cosine_matrix, decomposed_cosines, sketch
from cfl_flower.types import Vector
from simulations.benchmark.measure import Row, resident_pages, times


def rows() -> Iterator[Row]:
    """Time FlexCFL's group cold start, against the randomised SVD of its code."""
    for count, length, limit in ((1000, 101_770, 1.5), (100, 11_200_000, 4.0)):
        with ProcessPoolExecutor(1, get_context("spawn")) as worker:
            job = worker.submit(_measure_directions, count, length)
            seconds, memory = job.result()
        what = f"EDC of {count:,} updates x {length:,} parameters"
        yield Row(
            f"{what}, one thread",
            f"{seconds:.2f} s",
            f"{limit} s",
            seconds <= limit,
        )
        if count * length > 10**9:
            figure = f"{memory:.2f} x"
            yield Row(f"{what}, memory / updates", figure, "1.2 x", memory <= 1.2)
    updates = _random_updates(60, 101_770)
    exact = cosine_matrix(updates)
    for dimension in (256, 1024, 4096):
        sketches = [sketch(update, dimension, 0) for update in updates]
        error = float(np.sqrt(np.square(cosine_matrix(sketches) - exact).mean()))
        what = f"sketch of {dimension:,} for 101,770: mean error of a cosine"
        bound = np.sqrt(2 / dimension)
        yield Row(what, f"{error:.3f}", f"{bound:.3f}", error <= bound)
    for count, length in ((1000, 650), (100, 610), (1000, 7850)):
        ratio, seconds = _compare_directions(count, length)
        what = f"EDC of {count:,} x {length:,}, against a randomised SVD"
        yield Row(what, f"{ratio:.2f} x  ({seconds:.3f} s)", "1 x", ratio <= 1)


def _random_updates(count: int, length: int) -> list[Vector]:
    """Return updates around five directions."""
    rng = np.random.default_rng(0)
    bases = rng.standard_normal((5, length), np.float32)
    return [
        bases[i % 5] + rng.standard_normal(length, np.float32) for i in range(count)
    ]


def _measure_directions(count: int, length: int) -> tuple[float, float]:
    """Return the seconds of EDC, and the peak memory in multiples of the updates'."""
    before = resident_pages() * resource.getpagesize()
    updates = _random_updates(count, length)
    start = time.perf_counter()
    decomposed_cosines(updates, 5)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    return seconds, peak / (count * length * 4)


def _compare_directions(count: int, length: int) -> tuple[float, float]:
    """Return the time of EDC per time of a randomised SVD, and its seconds."""
    updates = _random_updates(count, length)

    def by_svd() -> None:
        matrix = np.stack(updates)
        axes = TruncatedSVD(5, random_state=0).fit_transform(matrix.T)
        cosine_similarity(matrix, axes.T)

    with threadpool_limits(limits=1):
        reference = median(times(by_svd, 5))
        seconds = median(times(lambda: decomposed_cosines(updates, 5), 5))
    return seconds / reference, seconds
