"""An upload at CCFL's server."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from cfl_flower.data.public import Samples
from cfl_flower.learning.public_evaluation import Validation
from cfl_flower.learning.training import LocalTraining, train
from cfl_flower.models import CcflCnn, FlatModel, Network
from simulations.benchmark import measure as bench

CLUSTERS, CHANGED = 4, 1.9
"""K, and how many clusters an upload changes in the mean."""


def rows() -> Iterator[bench.Row]:
    """Time an upload at CCFL's server against the naive tests, and against training.

    The naive tests are of 1,000 public images each, on one core as the upload; the
    server's pace is that with the paper's 2,000, on as many cores as there are workers.
    """
    torch.set_num_threads(1)
    name = "CCFL: an upload against 2K naive tests (K = 4, 1,000 images)"
    yield bench.compare(name, *_measure_upload(1000, cores=1), 0.6)
    reference = partial(bench.on_two_workers, _measure_task)
    (upload, _), task = bench.between(reference, lambda: _measure_upload(2000, cores=2))
    name = "CCFL: an upload on 2 cores against 5 epochs on 2 workers (2,000 images)"
    yield bench.compare(name, upload, bench.Seconds(task.wall / 2), 1)


def _measure_upload(images: int, cores: int) -> tuple[bench.Seconds, bench.Seconds]:
    """Return the time of an upload, and of the naive tests.

    An upload is tested on all sets, and the clusters that it changes on their own. The
    naive tests pass each set at once through the layers as they are.
    """
    sets = [_random_images(images) for _ in range(CLUSTERS)]
    validation, plain = Validation(_network(), sets, cores), FlatModel(_network())
    model = plain.to_vector()
    network = cast(Network, plain.module.eval())
    layers = nn.Sequential(*network.extractor.children(), network.classifier)

    @torch.no_grad()
    def test_naively() -> None:
        for each in 2 * sets:
            plain.load(model)
            logits = layers(each.x)
            float(cross_entropy(logits, each.y))
            int((logits.argmax(1) == each.y).sum())

    losses, own, naive = bench.measure(
        lambda: validation.losses(model),
        lambda: validation.own([model.copy()] * CLUSTERS),
        test_naively,
        count=5,
    )
    return bench.Seconds(losses.wall + own.wall * CHANGED / CLUSTERS), naive


def _measure_task() -> bench.Seconds:
    """Return the time of a client's task: 5 epochs of the mean of 1,250 samples."""
    torch.set_num_threads(1)
    samples, model = _random_images(1250), FlatModel(_network())
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
