"""Fielding's server steps for many clients."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from statistics import median

import numpy as np
from threadpoolctl import threadpool_limits

from cfl_flower.clustering.algorithms import (
    KMeansScan,
    choose_clusters,
    cluster_centres,
)
from cfl_flower.clustering.centres import (
    largest_shift,
    mean_centre_distance,
    move_drifted,
    needs_reclustering,
    recompute_centres,
)
from cfl_flower.clustering.representations import (
    largest_pairwise_distance,
    mean_client_distance,
)
from simulations.benchmark.measure import Row, times


def rows() -> Iterator[Row]:
    """Take time and memory of moving and re-clustering, x 100 labels, on one core.

    A move is a whole drift event that does not lead to a re-clustering.
    """
    rng = np.random.default_rng(0)
    bases = rng.dirichlet(np.full(100, 0.1), 12)
    for count, drifted, limits in (
        (5078, 5078, (0.1, 3.0)),
        (100_000, 1000, (0.2, 30)),
    ):
        clusters = np.arange(count) % 12
        points = np.stack([rng.dirichlet(60 * bases[k] + 0.02) for k in clusters])
        points = points.astype(np.float32)
        centres = cluster_centres(points, clusters, 12)
        who = np.arange(drifted)

        def move() -> None:
            moved = move_drifted(who, points, clusters, centres, "l1")  # noqa: B023
            after = recompute_centres(points, moved, centres)  # noqa: B023
            shift = largest_shift(centres, after, "l1")  # noqa: B023
            needs_reclustering(shift, mean_centre_distance(after, "l1"), 1 / 3)
            draws = np.random.default_rng(2)
            mean_client_distance(points, moved, "l1", draws)  # noqa: B023

        def measure_width() -> None:
            largest_pairwise_distance(points, clusters, "l1")  # noqa: B023

        def recluster() -> None:
            found = choose_clusters(
                points,  # noqa: B023
                "l1",
                KMeansScan(),
                np.random.default_rng(1),
            )
            assert found.max() == 11

        with threadpool_limits(limits=1):
            for name, step, limit in (
                (
                    f"a drift of {drifted:,} of {count:,} clients x 100 labels",
                    move,
                    limits[0],
                ),
                (f"the pairwise trigger, {count:,} x 100", measure_width, limits[0]),
                (f"re-clustering {count:,} x 100, K = 2..20", recluster, limits[1]),
            ):
                seconds = median(times(step, 3))
                yield Row(name, f"{seconds:.3f} s", f"{limit} s", seconds <= limit)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    yield Row(
        "all of this: peak memory of the process",
        f"{peak:.2f} GB",
        "1 GB",
        peak <= 1,
    )
