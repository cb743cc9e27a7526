"""Anchors, a point for each class in the space of representations, and alignment.

A client's anchors are its classes' mean representations; the server averages them, and
a client's loss draws representations to what it received.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss, normalize

from cfl_flower.clustering.representations import parse_vector
from cfl_flower.errors import InvalidResultError
from cfl_flower.models import Split
from cfl_flower.types import BoolArray, FloatArray, Scalar, Vector


@dataclass(frozen=True)
class Anchors:
    """A point in the space of representations for each class: FedCCFA, eq. 6."""

    points: FloatArray = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    """Float32, shape (L, D); zero for a class without an anchor."""
    present: BoolArray = field(default_factory=lambda: np.zeros(0, bool))
    """Whether each class has one, shape (L,)."""


@torch.no_grad()
def class_means(representations: Tensor, y: Tensor, classes: int) -> Anchors:
    """Return the mean representation of each class: FedCCFA, eq. 6.

    ``representations`` have shape (n, D), the labels ``y`` (n,).
    """
    members = torch.nn.functional.one_hot(y, classes).T.double()
    counts = members.sum(1)
    sums = members @ representations.double()
    # FedCCFA, eq. 6.
    points = (sums / counts.clamp(min=1)[:, None]).float()
    return Anchors(points.cpu().numpy(), (counts > 0).cpu().numpy())


@dataclass(frozen=True, eq=False)
class Contrast:
    """FedFM's contrastive-guiding loss: FedCCFA, eq. 8.

    -log(exp(cos(z, A_y)/tau) / sum_c exp(cos(z, A_c)/tau)), the mean over a batch.
    Classes without an anchor are left out of the sum; the loss of their samples is 0.
    """

    points: Tensor
    """The anchors' directions, shape (L, D)."""
    present: Tensor
    """Whether each class has an anchor, shape (L,)."""
    temperature: float

    def __call__(self, z: Tensor, y: Tensor) -> Tensor:
        """Return the loss of representations (n, D) with labels (n,)."""
        kept = self.present[y]
        logits = normalize(z[kept], eps=1e-8) @ self.points.T / self.temperature
        logits = logits.masked_fill(~self.present, -torch.inf)
        return cross_entropy(logits, y[kept], reduction="sum") / len(y)

    def of_samples(
        self, z: Tensor, y: Tensor, points: Tensor, present: Tensor
    ) -> Tensor:
        """Return each sample's loss, (n,), with another client's anchors."""
        logits = normalize(z, eps=1e-8) @ points.T / self.temperature
        logits = logits.masked_fill(~present, -torch.inf)
        losses = cross_entropy(logits, y, reduction="none")
        return torch.where(present[y], losses, 0.0)


@dataclass(frozen=True, eq=False)
class Distance:
    """FedPAC's loss: the mean squared distance to the anchor, per coordinate.

    It is 0 for samples of a class without an anchor.
    """

    points: Tensor
    """The anchors, shape (L, D)."""
    present: Tensor
    """Whether each class has one, shape (L,)."""

    def __call__(self, z: Tensor, y: Tensor) -> Tensor:
        """Return the loss of representations (n, D) with labels (n,)."""
        kept = self.present[y]
        return mse_loss(z[kept], self.points[y[kept]], reduction="sum") / z.numel()

    def of_samples(
        self, z: Tensor, y: Tensor, points: Tensor, present: Tensor
    ) -> Tensor:
        """Return each sample's loss, (n,), with another client's anchors."""
        return present[y] * (z - points[y]).square().mean(1)


def contrast(anchors: Anchors, temperature: float, device: torch.device) -> Contrast:
    """Return the alignment with the directions of some anchors."""
    directions = normalize(torch.from_numpy(anchors.points), eps=1e-8).to(device)
    present = torch.from_numpy(anchors.present).to(device)
    return Contrast(directions, present, temperature)


def distance(anchors: Anchors, device: torch.device) -> Distance:
    """Return the alignment with some anchors themselves."""
    points = torch.from_numpy(anchors.points).to(device)
    return Distance(points, torch.from_numpy(anchors.present).to(device))


@dataclass(frozen=True, eq=False)
class AlignedLoss:
    """The cross-entropy plus the weighted alignment: FedCCFA, eq. 9.

    The one loss beside the plain one that a cohort can map over its clients.
    """

    alignment: Contrast | Distance
    weight: float
    smoothing: float = 0.0

    def __call__(self, module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean over a batch."""
        z = module.extractor(x)  # type: ignore[operator]
        logits = module.classifier(z)  # type: ignore[operator]
        likelihood = cross_entropy(logits, y, label_smoothing=self.smoothing)
        # FedCCFA, eq. 9.
        return likelihood + self.weight * self.alignment(z, y)

    @property
    def alike(self) -> Hashable:
        """What is equal for clients whose losses differ in their ``tensors`` alone."""
        temperature = getattr(self.alignment, "temperature", None)
        points = self.alignment.points
        return type(self.alignment), temperature, points.shape, self.smoothing

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What is this client's own."""
        points = self.alignment.points
        return points, self.alignment.present, points.new_tensor(self.weight)

    def of_samples(
        self, module: nn.Module, x: Tensor, y: Tensor, *own: Tensor
    ) -> Tensor:
        """Return each sample's loss, (n,), with the ``tensors`` of another client."""
        points, present, weight = own
        z = module.extractor(x)  # type: ignore[operator]
        logits = module.classifier(z)  # type: ignore[operator]
        smoothing = self.smoothing
        losses = cross_entropy(logits, y, reduction="none", label_smoothing=smoothing)
        return losses + weight * self.alignment.of_samples(z, y, points, present)


def mean_anchors(points: FloatArray, counts: FloatArray, before: Anchors) -> Anchors:
    """Return global anchors: means of the clients', weighted by samples (FedFM).

    Parameters
    ----------
    points : array, shape (m, L, D)
        The clients' anchors.
    counts : array, shape (m, L)
        Their samples of each class; 0 where a client has no anchor.
    before : Anchors
        What stays for the classes without samples.

    Returns
    -------
    Anchors
    """
    totals = counts.sum(axis=0)
    sums = np.einsum("mld,ml->ld", points.astype(float), counts)
    held = totals > 0
    means = sums / np.where(held, totals, 1)[:, None]
    found = np.where(held[:, None], means, before.points).astype(np.float32)
    return Anchors(found, held | before.present)


def no_anchors(split: Split) -> Anchors:
    """Return anchors of which none is present."""
    points = np.zeros((split.classes, split.width), np.float32)
    return Anchors(points, np.zeros(split.classes, bool))


PRESENT = "present"
"""Key of a plan's config: which classes have an anchor."""


def presence_config(anchors: Anchors) -> dict[str, Scalar]:
    """Return which classes have an anchor as text: "101" for classes 0 and 2."""
    return {PRESENT: "".join("1" if each else "0" for each in anchors.present)}


def read_anchors(points: Vector, config: Mapping[str, Any]) -> Anchors:
    """Return the anchors that a client received, from points and `presence_config`."""
    present = np.array([each == "1" for each in config[PRESENT]])
    return Anchors(points.reshape(len(present), -1), present)


def parse_counts(data: object, classes: int) -> FloatArray:
    """Return a client's reported samples of each class after a check, shape (L,).

    Raises `InvalidResultError` if these are not L finite float32 numbers of at least 0.
    """
    counts = parse_vector(data, classes, "classes").astype(float)
    if (counts < 0).any():
        raise InvalidResultError("representation", "classes: counts are negative")
    return counts
