"""Representations of clients' data: `strategy/representation`, and the shared model.

Li et al., "Fielding: Clustered Federated Learning with Data Drift", section 2.3 (label
histograms) and Appendix E (embeddings, gradients). A class has both sides: what a
device computes, and how the server compares it. Appendix E.1: the server pre-trains a
shared model on a few samples of each class, or reads it from a file, and sends it once,
with the hello. It has the run's network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import ClassVar, TypeAlias, get_args

import numpy as np
import torch
from torch import Tensor

from cfl_flower.clustering.representations import Distance, distances, unit
from cfl_flower.clustering.similarity import sketch
from cfl_flower.errors import intact
from cfl_flower.learning.decoupling import balanced_batch, represent
from cfl_flower.learning.gradients import full_gradient
from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.learning.training import pretrain
from cfl_flower.models import FlatModel, model_of
from cfl_flower.run_config import RunConfig
from cfl_flower.seeding import generator, seed_torch, torch_seed
from cfl_flower.settings import (
    Count,
    Fraction,
    Natural,
    Positive,
    require,
    settings,
)
from cfl_flower.types import Vector

WHERE = "strategy.representation.shared"
"""The key of these settings."""


@settings(WHERE)
class SharedModel:
    """Where the shared model comes from."""

    path: str | None = None
    """File of the shared model, d float32 numbers as .npy, absolute or below
    `data_dir`; null to pre-train it, where the data are simulated."""
    samples: Natural = 200
    """Samples of each class for the pre-training; 0 takes the initial model as it is,
    such as one that was trained elsewhere."""
    epochs: Count = 30
    """Passes of the pre-training; the paper has 300, of a larger network."""
    batch_size: Count = 20
    """Samples of a mini-batch of the pre-training."""
    learning_rate: Positive = 0.1
    """Learning rate of the pre-training."""

    def make(self, config: RunConfig, initial: Vector, simulated: bool) -> Vector:
        """Return the shared model, trained from the initial one, both of shape (d,).

        Raises `ConfigError` if the file cannot be read or is of another network, if the
        data to pre-train on are not here (not ``simulated``), or if the training
        diverged.
        """
        if self.path is None and not self.samples:
            return initial
        if self.path is None:
            allowed = "a file: there are no data here to pre-train a shared model on"
            require(simulated, f"{WHERE}.path", "null", allowed)
            return self._pretrain(config, initial)
        path = Path(config.data_dir, self.path).expanduser()
        with intact(path):
            found = np.load(path, allow_pickle=False)
        allowed = f"a file with the {len(initial)} float32 numbers of the run's network"
        what = f"{path} ({found.dtype}{found.shape})"
        ok = found.shape == initial.shape and found.dtype == np.float32
        require(ok and np.isfinite(found).all(), f"{WHERE}.path", what, allowed)
        return np.asarray(found, np.float32)

    def _pretrain(self, config: RunConfig, initial: Vector) -> Vector:
        pool = config.dataset.load(config.data_dir)[0]
        rng = generator(config.seed, "shared-model")
        chosen = balanced_batch(pool.labels, self.samples, rng)
        seed_torch(torch_seed(config.seed, "shared-model"))
        model = model_of(config)
        local = LocalTraining(
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
        )
        x = pool.inputs(torch.from_numpy(chosen))
        y = torch.from_numpy(pool.labels[chosen])
        return pretrain(model, initial, x, y, local, rng, WHERE)


class OnePart:
    """A representation that is compared as a whole, by the strategy's distance."""

    name: ClassVar[str]
    metrics: ClassVar[tuple[Distance, ...]] = ("l1", "l2", "cosine")
    """The distances that it can be compared by."""
    has_labels: ClassVar[bool] = False
    """Whether it begins with a label histogram."""
    by_model: ClassVar[bool] = False
    """Whether a shared model computes it, or the part after the histogram."""

    def parts(self, classes: int) -> Sequence[slice]:
        """Return the parts of a representation, each of which can trigger."""
        return (slice(None),)

    def gap(self, last: Vector, now: Vector, distance: Distance, classes: int) -> float:
        """Return by how much a representation changed, which may be tolerated."""
        return float(distances(last[None], now[None], distance)[0, 0])


@settings("strategy.representation")
class LabelHistogram(OnePart):
    """The share of each label among a client's samples, L floats."""

    name: ClassVar[str] = "label_histogram"
    metrics: ClassVar[tuple[Distance, ...]] = get_args(Distance)
    has_labels: ClassVar[bool] = True
    least_silhouette: ClassVar[float] = -1.0

    def width(self, network: FlatModel, classes: int) -> int:
        """Return the length of a representation."""
        return classes


@settings("strategy.representation")
class Embedding(OnePart):
    """The mean of the inputs' embeddings by a shared model, D floats."""

    name: ClassVar[str] = "embedding"
    by_model: ClassVar[bool] = True

    shared: SharedModel = field(default_factory=SharedModel)
    """The shared model."""
    least_silhouette: Fraction = 0.1
    """Silhouette below which all clients are one cluster."""

    def width(self, network: FlatModel, classes: int) -> int:
        """Return the length of a representation."""
        return network.split.width

    def make(
        self, model: FlatModel, x: Tensor, y: Tensor, distance: Distance, seed: int
    ) -> Vector:
        """Return the mean embedding of samples by the loaded shared model; else zeros.

        With the cosine distance it has length 1. ``seed`` is the run's, for sketches.
        """
        if len(y) == 0:
            return np.zeros(model.split.width, np.float32)
        embedding: Vector = represent(model, x).mean(0).cpu().numpy()
        return unit(embedding) if distance == "cosine" else embedding


@settings("strategy.representation")
class Gradient(Embedding):
    """The gradient of the loss at a shared model, p floats, or a sketch of it."""

    name: ClassVar[str] = "gradient"

    sketch: Natural = 0
    """Numbers in a gradient's sketch; 0 for the whole gradient."""

    def width(self, network: FlatModel, classes: int) -> int:
        """Return the length of a representation."""
        return self.sketch or len(network.weights)

    def make(
        self, model: FlatModel, x: Tensor, y: Tensor, distance: Distance, seed: int
    ) -> Vector:
        """Return the gradient, or its sketch; also at length 1 beside a histogram."""
        gradient: Vector = full_gradient(model, x, y).cpu().numpy()
        if self.sketch:
            gradient = sketch(gradient, self.sketch, seed)
        scaled = distance == "cosine" or self.has_labels
        return unit(gradient) if scaled else gradient


@settings("strategy.representation")
class Combined(Gradient):
    """Label histogram and gradient side by side, L + p floats."""

    name: ClassVar[str] = "combined"
    metrics: ClassVar[tuple[Distance, ...]] = ("l1", "l2")
    has_labels: ClassVar[bool] = True

    def width(self, network: FlatModel, classes: int) -> int:
        """Return the length of a representation."""
        return classes + super().width(network, classes)

    def parts(self, classes: int) -> Sequence[slice]:
        """Return the parts of a representation, each of which can trigger."""
        return slice(0, classes), slice(classes, None)

    def gap(self, last: Vector, now: Vector, distance: Distance, classes: int) -> float:
        """Return by how much the labels changed; infinity if the gradient did."""
        labels = float(abs(now[:classes] - last[:classes]).sum())
        turned = distances(last[None, classes:], now[None, classes:], "cosine")[0, 0]
        return np.inf if turned > 0 else labels


Representation: TypeAlias = LabelHistogram | Embedding | Gradient | Combined
