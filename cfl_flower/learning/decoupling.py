"""Building blocks of decoupled methods: a classifier trained by itself.

A network is an extractor and a linear classifier (`models.Split`). While the extractor
is frozen, representations are computed once: training the classifier is softmax
regression on them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor

from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.learning.testing import blocks_of, switch_mode
from cfl_flower.learning.training import train
from cfl_flower.models import FlatModel, SoftmaxRegression, Split
from cfl_flower.types import IntArray, Vector


@torch.no_grad()
def represent(model: FlatModel, x: Tensor) -> Tensor:
    """Return the representations of samples in evaluation mode, shape (n, D)."""
    switch_mode(model, training=False)
    model.passes += len(x)
    return torch.cat([model.extractor(part) for part in blocks_of(x)])


def train_classifier(
    split: Split,
    classifier: Vector,
    representations: Tensor,
    y: Tensor,
    settings: LocalTraining,
    rng: Generator,
) -> Vector:
    """Return the classifier after training on representations, the extractor frozen.

    Parameters
    ----------
    split : Split
        The network's.
    classifier : Vector, shape (L * (D + 1),)
        The weights at the start.
    representations, y : Tensor
        Shapes (n, D) and (n,); no images that could be augmented.
    settings : LocalTraining
        The optimiser's.
    rng : numpy.random.Generator
        Orders the batches.

    Returns
    -------
    Vector, shape (L * (D + 1),)
    """
    settings = replace(settings, augment=[])
    module = SoftmaxRegression(split.width, split.classes)
    alike = SoftmaxRegression, split.width, split.classes
    model = FlatModel(module, y.device, alike).load(classifier)
    train(model, representations, y, settings, rng)
    return model.to_vector()


def initial_classifier(split: Split, rng: Generator) -> Vector:
    """Draw a classifier from torch's default, uniform within 1 / sqrt(D)."""
    bound = split.width**-0.5
    count = split.classes * (split.width + 1)
    return rng.uniform(-bound, bound, count).astype(np.float32)


def balanced_batch(labels: NDArray[np.integer], each: int, rng: Generator) -> IntArray:
    """Draw the indices of ``each`` samples of every label that occurs, label by label.

    With replacement if there are fewer; ``labels`` have shape (n,).

    Examples
    --------
    >>> batch = balanced_batch(np.array([2, 0, 0, 0]), 2, np.random.default_rng(0))
    >>> np.array([2, 0, 0, 0])[batch]
    array([0, 0, 2, 2])
    """
    drawn = [np.zeros(0, np.int64)]
    for label in np.unique(labels):
        own = np.flatnonzero(labels == label)
        drawn.append(rng.choice(own, each, replace=len(own) < each))
    return np.concatenate(drawn)


def label_entropy(counts: NDArray[np.integer]) -> float:
    """Return the entropy of a label distribution in nats: FedCCFA, eq. 9."""
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())
