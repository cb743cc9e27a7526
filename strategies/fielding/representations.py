"""Representations of clients' data: `strategy/representation`.

Li et al., "Fielding: Clustered Federated Learning with Data Drift", section 2.3 (label
histograms) and Appendix E (embeddings, gradients). A class has both sides: what a
device computes, and how the server compares it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import ClassVar, TypeAlias, get_args

import numpy as np
from torch import Tensor

from cfl_flower.clustering.representations import (
    Distance,
    distances,
    unit,
)
from cfl_flower.clustering.similarity import sketch
from cfl_flower.learning.decoupling import represent
from cfl_flower.learning.gradients import full_gradient
from cfl_flower.models import FlatModel
from cfl_flower.settings import Fraction, Natural, NonNegative, settings
from cfl_flower.types import Vector
from strategies.fielding.shared_model import SharedModel


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

    def changed(
        self,
        last: Vector,
        now: Vector,
        distance: Distance,
        tolerance: float,
        classes: int,
    ) -> bool:
        """Return whether a representation changed by more than the tolerance."""
        gap = distances(last[None], now[None], distance)[0, 0]
        return bool(gap > tolerance)

    def largest_tolerance(self, tolerance: float) -> float:
        """Return the largest change of a part that a client does not report."""
        return tolerance


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

    gradient_tolerance: NonNegative = 0.0
    """Change of the gradient, as 1 - cos, that is no drift yet; `tolerance` is the
    histogram's L1 change."""

    def width(self, network: FlatModel, classes: int) -> int:
        """Return the length of a representation."""
        return classes + super().width(network, classes)

    def parts(self, classes: int) -> Sequence[slice]:
        """Return the parts of a representation, each of which can trigger."""
        return slice(0, classes), slice(classes, None)

    def changed(
        self,
        last: Vector,
        now: Vector,
        distance: Distance,
        tolerance: float,
        classes: int,
    ) -> bool:
        """Return whether either part changed by more than its tolerance."""
        labels = float(abs(now[:classes] - last[:classes]).sum())
        turned = distances(last[None, classes:], now[None, classes:], "cosine")[0, 0]
        return bool(labels > tolerance or turned > self.gradient_tolerance)

    def largest_tolerance(self, tolerance: float) -> float:
        """Return the largest change of a part that a client does not report."""
        return max(tolerance, self.gradient_tolerance)


Representation: TypeAlias = LabelHistogram | Embedding | Gradient | Combined
