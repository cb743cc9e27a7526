"""FedCCFA's classifier collaboration, and a round of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from statistics import median

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from cfl_flower.config.compose import compose_config
from cfl_flower.learning.decoupling import (
    aligned,
    balanced_batch,
    class_means,
    contrast,
    represent,
    train_classifier,
)
from cfl_flower.learning.training import train
from cfl_flower.models import FlatModel, initial_vector
from cfl_flower.types import FloatArray
from simulations.benchmark.measure import Row, finish, on_two_workers, times
from strategies.fedccfa import class_distances, cluster_classes, cluster_means

CLIENTS, SAMPLES = 20, 3000

ROUND = [
    "strategy=fedccfa",
    "strategy.start=0",
    "drift=none",
    "dataset.size=28",
    "model=fedccfa_cnn",
    f"clients={CLIENTS}",
    f"participants={CLIENTS}",
    f"partition.samples={SAMPLES}",
    "partition.test_samples=10",
    "strategy.local.epochs=5",
    "strategy.local.batch_size=64",
    "strategy.local.momentum=0.9",
    "system.evaluate_every=99",
    "system.checkpoint_every=99",
    "workers=2",
    "rounds=5",
]
"""Everyone of 20 in every round, with Fashion-MNIST's network and number of samples."""


def rows() -> Iterator[Row]:
    """Time what the server does, then a whole round."""
    yield from collaboration_rows()
    before = on_two_workers(_measure_local_work)
    done = finish(ROUND)
    work = (before + on_two_workers(_measure_local_work)) / 2
    # The first round starts the workers, the second has no anchors, the last one tests.
    seconds = median(row["seconds"] for row in done.rounds[2:-1])
    ratio = seconds / (CLIENTS * work / 2)
    name = f"FedCCFA, {CLIENTS} clients: a round against its local work on 2 workers"
    yield Row(name, f"{ratio:.2f} x  ({seconds:.1f} s)", "1.1 x", ratio <= 1.1)


def collaboration_rows() -> Iterator[Row]:
    """Time FedCCFA's classifier collaboration on one core, with planted concepts."""
    for clients, classes, width, limit in ((20, 10, 128, 0.03), (500, 100, 512, 12.0)):
        rng = np.random.default_rng(0)
        shape = (clients, classes, width + 1)
        bases = rng.standard_normal((4, classes, width + 1))
        rows = bases[np.arange(clients) % 4] + 0.3 * rng.standard_normal(shape)
        rows, points = rows.astype(np.float32), rows[:, :, :width].astype(np.float32)
        weights = np.ones((clients, classes))

        def collaborate(
            rows: FloatArray = rows,
            points: FloatArray = points,
            weights: FloatArray = weights,
        ) -> None:
            clusters = cluster_classes(class_distances(rows, weights), 0.1)
            cluster_means(rows, clusters, weights)
            cluster_means(points, clusters, weights)

        with threadpool_limits(limits=1):
            seconds = median(times(collaborate, 5 if clients == 20 else 1))
        name = f"FedCCFA: {clients} clients x {classes} classes x {width} features"
        yield Row(name, f"{seconds:.3f} s", f"{limit} s", seconds <= limit)


def _measure_local_work() -> float:
    """Return the seconds in which a client trains: Algorithm 1, lines 5 to 12."""
    config = compose_config(ROUND)
    torch.set_num_threads(1)
    dataset, settings = config.dataset, config.strategy
    classes = dataset.classes
    model = FlatModel(config.model.build(dataset.shape, classes))
    split, local = model.split, settings.local
    x = torch.rand(SAMPLES, *dataset.shape)
    y = torch.arange(SAMPLES) % classes
    start = initial_vector(config.model, dataset.shape, classes, 0)
    classifier = split.divide(start)[1]
    balanced = replace(local, steps=settings.balanced_steps)
    own = replace(local, epochs=settings.classifier_epochs)
    one = np.random.default_rng(0)
    anchors = class_means(represent(model.load(start), x), y, classes)
    loss = aligned(contrast(anchors, settings.temperature, x.device), 0.1)

    def step() -> None:
        z = represent(model.load(start), x)
        few = balanced_batch(y.numpy(), settings.balanced_samples, one)
        train_classifier(split, classifier, z[few], y[few], balanced, one)
        train_classifier(split, classifier, z, y, own, one)
        train(model.load(start), x, y, local, one, loss=loss, part=split.part)
        class_means(represent(model, x), y, classes)

    return median(times(step, 3))
