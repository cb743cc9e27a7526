"""FedCCFA's classifier collaboration."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from cfl_flower.clustering.class_clusters import (
    class_distances,
    cluster_classes,
    cluster_means,
)
from cfl_flower.types import FloatArray
from simulations.benchmark import measure as bench


def rows() -> Iterator[bench.Row]:
    """Time the server's steps on one core, with planted concepts."""
    for clients, classes, width, limit in ((20, 10, 128, 0.03), (500, 100, 512, 12.0)):
        classifiers = _random_classifiers(clients, classes, width)
        name = f"FedCCFA: {clients} clients x {classes} classes x {width} features"
        yield bench.on_one_core(name, partial(_collaborate, classifiers), limit)


def _random_classifiers(clients: int, classes: int, width: int) -> FloatArray:
    """Return classifiers, with a bias each, around those of four concepts."""
    rng = np.random.default_rng(0)
    bases = rng.standard_normal((4, classes, width + 1))
    noise = rng.standard_normal((clients, classes, width + 1))
    return (bases[np.arange(clients) % 4] + 0.3 * noise).astype(np.float32)


def _collaborate(classifiers: FloatArray) -> None:
    points, weights = classifiers[:, :, :-1], np.ones(classifiers.shape[:2])
    clusters = cluster_classes(class_distances(classifiers, weights), 0.1)
    cluster_means(classifiers, clusters, weights)
    cluster_means(points, clusters, weights)
