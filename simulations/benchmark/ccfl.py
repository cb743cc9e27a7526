"""An upload at CCFL's server."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

from cfl_flower.data.worlds.public import Samples
from cfl_flower.learning.public_evaluation import Validation
from cfl_flower.learning.training import LocalTraining, train
from cfl_flower.models import CcflCnn, FlatModel
from simulations.benchmark import measure as bench

CLUSTERS = 4
CHANGED = 1.9
"""K, and how many clusters an upload changes in the mean."""


def rows() -> Iterator[bench.Row]:
    """Time an upload at the server against the training that leads to it.

    As many cores as there are workers, and the paper's 2,000 public images per cluster.
    """
    torch.set_num_threads(1)
    upload, task = bench.beside_two_workers(_measure_task, _measure_upload)
    name = "CCFL: an upload on 2 cores against 5 epochs on 2 workers (2,000 images)"
    yield bench.compare(name, upload, bench.Seconds(task.wall / 2), 1)


def _measure_upload() -> bench.Seconds:
    """Return the time of an upload.

    It is tested on all sets, and the clusters that it changes on their own.
    """
    sets = [_random_images(2000) for _ in range(CLUSTERS)]
    validation = Validation(_network(), sets, 2)
    model = FlatModel(_network())
    vector = model.to_vector()
    losses, own = bench.measure(
        lambda: validation.losses(vector),
        lambda: validation.own([vector.copy()] * CLUSTERS),
        count=5,
    )
    return bench.Seconds(losses.wall + own.wall * CHANGED / CLUSTERS)


def _measure_task() -> bench.Seconds:
    """Return the time of a client's task: 5 epochs of the mean of 1,250 samples."""
    torch.set_num_threads(1)
    samples = _random_images(1250)
    model = FlatModel(_network())
    local = LocalTraining(
        "adam", epochs=5, batch_size=128, learning_rate=0.01, weight_decay=0.005, mu=0.1
    )
    rng = np.random.default_rng(0)
    return bench.measure(lambda: train(model, samples.x, samples.y, local, rng))[0]


def _network() -> nn.Module:
    return CcflCnn().build((1, 28, 28), 10)


def _random_images(count: int) -> Samples:
    """Return a public set of Fashion-MNIST's size and classes."""
    return Samples(torch.rand(count, 1, 28, 28), torch.randint(0, 10, (count,)))
