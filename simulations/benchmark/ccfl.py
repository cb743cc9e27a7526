"""An upload at CCFL's server."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import cast

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from cfl_flower.data.public import Samples
from cfl_flower.learning.public_evaluation import Validation
from cfl_flower.learning.training import LocalTraining, train
from cfl_flower.models import CcflCnn, FlatModel, Network
from simulations.benchmark.measure import Row, on_two_workers, times


def rows() -> Iterator[Row]:
    """Time an upload at CCFL's server against the naive tests, and against training.

    K = 4 and the paper's network. The naive tests are of 1,000 public images each, on
    one core as the upload; the pace of the server is that with the paper's 2,000, and
    with as many cores as there are workers.
    """
    torch.set_num_threads(1)
    upload, naive = _measure_upload(1000, cores=1)
    ratio = upload / naive
    name = "CCFL: an upload against 2K naive tests (K = 4, 1,000 images)"
    yield Row(name, f"{ratio:.2f}x ({upload:.2f} s)", "0.6x", ratio <= 0.6)
    before = on_two_workers(_measure_task)
    upload, _ = _measure_upload(2000, cores=2)
    task = (before + on_two_workers(_measure_task)) / 2
    pace = upload / (task / 2)
    name = "CCFL: an upload on 2 cores against 5 epochs on 2 workers (2,000 images)"
    figure = f"{pace:.2f}x ({upload:.2f} s)"
    yield Row(name, figure, "1x", pace <= 1)


def _measure_upload(images: int, cores: int) -> tuple[float, float]:
    """Return the seconds of an upload, and of the naive tests.

    An upload is tested on all sets, and 1.9 of 4 clusters, as many as it changes in the
    mean, on their own. The naive tests pass each set at once through the layers as they
    stand.
    """
    clusters, changed = 4, 1.9
    made = torch.Generator().manual_seed(0)
    sets = [_random_images(images, made) for _ in range(clusters)]
    validation = Validation(_network(), sets, cores)
    plain = FlatModel(_network())
    model = plain.to_vector()
    network = cast(Network, plain.module.eval())
    layers = nn.Sequential(*network.extractor.children(), network.classifier)

    @torch.no_grad()
    def look_naively() -> None:
        for _ in range(2):
            for each in sets:
                plain.load(model)
                logits = layers(each.x)
                float(cross_entropy(logits, each.y))
                int((logits.argmax(1) == each.y).sum())

    measured = [
        (
            min(times(lambda: validation.losses(model), 2)),
            min(times(lambda: validation.own([model.copy()] * clusters), 2)),
            min(times(look_naively, 2)),
        )
        for _ in range(3)
    ]
    upload, own, naive = (median(column) for column in zip(*measured, strict=True))
    return upload + own * changed / clusters, naive


def _measure_task() -> float:
    """Return the seconds of a client's task: 5 epochs of the mean of 1,250 samples."""
    torch.set_num_threads(1)
    samples = _random_images(1250, torch.Generator().manual_seed(0))
    local = LocalTraining(
        "adam", epochs=5, batch_size=128, learning_rate=0.01, weight_decay=0.005, mu=0.1
    )
    model, rng = FlatModel(_network()), np.random.default_rng(0)
    return min(times(lambda: train(model, samples.x, samples.y, local, rng), 3))


def _network() -> nn.Module:
    return CcflCnn().build((1, 28, 28), 10)


def _random_images(count: int, made: torch.Generator) -> Samples:
    """Return a public set of Fashion-MNIST's size and classes."""
    images = torch.rand(count, 1, 28, 28, generator=made)
    return Samples(images, torch.randint(0, 10, (count,), generator=made))
