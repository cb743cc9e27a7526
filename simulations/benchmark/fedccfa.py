"""FedCCFA's classifier collaboration, and a round of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from statistics import median

import numpy as np

from cfl_flower.clustering.class_clusters import (
    class_distances,
    cluster_classes,
    cluster_means,
)
from cfl_flower.learning import decoupling
from cfl_flower.learning.training import train
from cfl_flower.types import FloatArray
from simulations.benchmark import measure as bench

RUN = """
    strategy=fedccfa strategy.start=0 drift=none dataset.size=28 model=fedccfa_cnn
    clients=20 participants=20 partition.samples=3000 partition.test_samples=10
    strategy.local.epochs=5 strategy.local.batch_size=64 strategy.local.momentum=0.9
    system.evaluate_every=99 system.checkpoint_every=99 workers=2 rounds=5
"""
"""All of 20 in every round, with Fashion-MNIST's network and number of samples."""


def rows() -> Iterator[bench.Row]:
    """Time the server's steps on planted concepts on one core, then a whole round."""
    for clients, classes, width, limit in ((20, 10, 128, 0.03), (500, 100, 512, 12.0)):
        classifiers = _random_classifiers(clients, classes, width)
        name = f"FedCCFA: {clients} clients x {classes} classes x {width} features"
        yield bench.on_one_core(name, partial(_collaborate, classifiers), limit)
    run, work = bench.beside_two_workers(
        _measure_local_work, partial(bench.finish, RUN)
    )
    # The first round starts the workers, the second has no anchors, the last one tests.
    ours = bench.Seconds(median(row["seconds"] for row in run.rounds[2:-1]))
    name = "FedCCFA, 20 clients: a round against its local work on 2 workers"
    yield bench.compare(name, ours, bench.Seconds(20 * work.wall / 2), 1.1)


def _random_classifiers(clients: int, classes: int, width: int) -> FloatArray:
    """Return classifiers, with a bias each, around those of four concepts."""
    rng = np.random.default_rng(0)
    bases = rng.standard_normal((4, classes, width + 1))
    noise = rng.standard_normal((clients, classes, width + 1))
    return (bases[np.arange(clients) % 4] + 0.3 * noise).astype(np.float32)


def _collaborate(classifiers: FloatArray) -> None:
    points = classifiers[:, :, :-1]
    weights = np.ones(classifiers.shape[:2])
    clusters = cluster_classes(class_distances(classifiers, weights), 0.1)
    cluster_means(classifiers, clusters, weights)
    cluster_means(points, clusters, weights)


def _measure_local_work() -> bench.Seconds:
    """Return the time in which a client trains: Algorithm 1, lines 5 to 12."""
    config, model, start, x, y = bench.set_up(RUN, 3000)
    settings = config.strategy
    local = config.strategy.local
    classes = 10
    split = model.split
    rng = np.random.default_rng(0)
    classifier = split.divide(start)[1]
    balanced = replace(local, steps=settings.balanced_steps)
    own = replace(local, epochs=settings.classifier_epochs)
    z = decoupling.represent(model.load(start), x)
    anchors = decoupling.class_means(z, y, classes)
    contrast = decoupling.contrast(anchors, settings.temperature, x.device)
    loss = decoupling.aligned(contrast, 0.1)

    def step() -> None:
        z = decoupling.represent(model.load(start), x)
        few = decoupling.balanced_batch(y.numpy(), settings.balanced_samples, rng)
        decoupling.train_classifier(split, classifier, z[few], y[few], balanced, rng)
        decoupling.train_classifier(split, classifier, z, y, own, rng)
        train(model.load(start), x, y, local, rng, loss=loss, part=split.part)
        decoupling.class_means(decoupling.represent(model, x), y, classes)

    return bench.measure(step)[0]
