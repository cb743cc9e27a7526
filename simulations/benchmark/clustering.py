"""Fielding's server steps for many clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from threadpoolctl import threadpool_limits

from cfl_flower.clustering import algorithms, centres, representations
from cfl_flower.types import FloatArray, IntArray
from simulations.benchmark import measure as bench


def rows() -> Iterator[bench.Row]:
    """Measure moving and re-clustering of clients with 100 labels, on one core."""
    rng = np.random.default_rng(0)
    bases = rng.dirichlet(np.full(100, 0.1), 12)
    for clients, drifted, limits in (
        (5078, 5078, (0.1, 0.1, 3)),
        (100_000, 1000, (0.2, 0.2, 30)),
    ):
        names = (
            f"a drift of {drifted:,} of {clients:,} clients x 100 labels",
            f"the pairwise trigger, {clients:,} x 100",
            f"re-clustering {clients:,} x 100, K = 2..20",
        )
        clusters = np.arange(clients) % 12
        points = np.stack([rng.dirichlet(60 * bases[k] + 0.02) for k in clusters])
        steps = _steps(points.astype(np.float32), clusters, drifted)
        for name, step, limit in zip(names, steps, limits, strict=True):
            with threadpool_limits(limits=1):
                (taken,) = bench.measure(step)
            yield bench.within(name, taken[0], limit, "s", bench.say(taken))
    peak = bench.peak_bytes() / 1e9
    yield bench.within("all of this: peak memory of the process", peak, 1, "GB")


def _steps(
    points: FloatArray, clusters: IntArray, drifted: int
) -> tuple[Callable[[], None], ...]:
    """Return a drift event without re-clustering, a trigger, and a re-clustering."""
    before = algorithms.cluster_centres(points, clusters, 12)

    def move() -> None:
        who = np.arange(drifted)
        moved = centres.move_drifted(who, points, clusters, before, "l1")
        after = centres.recompute_centres(points, moved, before)
        shift = centres.largest_shift(before, after, "l1")
        mean = centres.mean_centre_distance(after, "l1")
        centres.needs_reclustering(shift, mean, 1 / 3)
        draws = np.random.default_rng(2)
        representations.mean_client_distance(points, moved, "l1", draws)

    def find_width() -> None:
        representations.largest_pairwise_distance(points, clusters, "l1")

    def recluster() -> None:
        scan = algorithms.KMeansScan()
        draws = np.random.default_rng(1)
        assert algorithms.choose_clusters(points, "l1", scan, draws).max() == 11

    return move, find_width, recluster
