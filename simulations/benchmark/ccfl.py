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
from cfl_flower.models import CcflCnn, FlatModel, Network
from cfl_flower.training import LocalTraining, train
from cfl_flower.validation import Validation
from simulations.benchmark.measure import Row, times


def rows() -> Iterator[Row]:
    """Time an upload at CCFL's server against the naive tests, and against training.

    K = 4 and the paper's network. The naive tests are of 1,000 public images each; the
    pace of the server is that with the paper's 2,000.
    """
    torch.set_num_threads(1)
    cost, reference, _ = _measure_upload(1000)
    ratio = cost / reference
    name = "CCFL: an upload against 2K naive tests (K = 4, 1,000 images)"
    yield Row(name, f"{ratio:.2f}x ({cost:.2f} s)", "0.6x", ratio <= 0.6)
    cost, _, epoch = _measure_upload(2000)
    # Two workers train a mean of 1,250 samples in 5 epochs; the server has one core.
    pace = cost / (epoch * 5 * 1250 / 2)
    name = "CCFL: an upload at the server against 5 epochs at 2 workers (2,000 images)"
    yield Row(name, f"{pace:.2f}x", "1x", pace <= 1)


def _measure_upload(images: int) -> tuple[float, float, float]:
    """Return the seconds of an upload, of the naive tests, and of training a sample.

    An upload is tested on all sets, and 1.9 of 4 clusters, as many as it changes in the
    mean, on their own. The naive tests pass each set at once through the layers as they
    stand.
    """
    settings, clusters, changed = CcflCnn(), 4, 1.9
    made = torch.Generator().manual_seed(0)
    sets = [_random_images(images, made) for _ in range(clusters)]
    validation = Validation(settings.build((1, 28, 28), 10), sets)
    plain = FlatModel(settings.build((1, 28, 28), 10))
    model = plain.to_vector()
    network = cast(Network, plain.module.eval())
    layers = nn.Sequential(*network.extractor.children(), network.classifier)

    @torch.no_grad()
    def naive() -> None:
        for _ in range(2):
            for each in sets:
                plain.load(model)
                logits = layers(each.x)
                float(cross_entropy(logits, each.y))
                int((logits.argmax(1) == each.y).sum())

    def train_once() -> None:
        x, y = sets[0].x, sets[0].y
        local = LocalTraining("adam", epochs=1, batch_size=128, learning_rate=0.01)
        train(plain.load(model), x, y, local, np.random.default_rng(0))

    measured = [
        (
            min(times(lambda: validation.losses(model), 2)),
            min(times(lambda: validation.own([model.copy()] * clusters), 2)),
            min(times(naive, 2)),
            min(times(train_once, 2)),
        )
        for _ in range(3)
    ]
    upload, own, reference, epoch = (
        median(column) for column in zip(*measured, strict=True)
    )
    return upload + own * changed / clusters, reference, epoch / images


def _random_images(count: int, made: torch.Generator) -> Samples:
    """Return a public set of Fashion-MNIST's size and classes."""
    images = torch.rand(count, 1, 28, 28, generator=made)
    return Samples(images, torch.randint(0, 10, (count,), generator=made))
