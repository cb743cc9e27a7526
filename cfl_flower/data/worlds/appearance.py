"""Drifts of how samples look: of all, of some labels' (P(x|y)), or of tests.

Samples look as through other sensors, in other light, or in noise: of the corruptions
of Hendrycks and Dietterich (ICLR 2019, arXiv 1903.12261) those that are one line, each
with a strength of its own unit. Values are not clipped to [0, 1], since a dataset may
have been normalised.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Literal

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from cfl_flower.data.worlds.drift import Change, Occasion
from cfl_flower.data.worlds.world import World
from cfl_flower.seeding import generator
from cfl_flower.settings import Natural, require, settings
from cfl_flower.types import BoolArray, FloatArray, IntArray


def blur(x: Tensor, sigma: float) -> Tensor:
    """Blur images, shape (n, channels, height, width), by a Gaussian, in pixels."""
    (height, width) = x.shape[-2:]
    columns = _spread(height, sigma).to(x.device)
    rows = _spread(width, sigma).to(x.device)
    return columns @ x @ rows.T


def _spread(size: int, sigma: float) -> Tensor:
    """Return what each of so many pixels in a row gets of each, shape (size, size).

    Pixels beyond the edge are those at the edge. A product with the matrix takes less
    time than a convolution of each channel.
    """
    reach = max(1, int(3 * sigma + 0.5))
    distances = torch.arange(-reach, reach + 1)
    weights = torch.exp(-((distances / sigma) ** 2) / 2)
    sources = (torch.arange(size)[:, None] + distances).clamp(0, size - 1)
    shares = (weights / weights.sum()).expand(size, -1)
    return torch.zeros(size, size).scatter_add_(1, sources, shares)


def contrast(x: Tensor, factor: float) -> Tensor:
    """Multiply the distance of pixels from the mean of their image's channel."""
    mean = x.mean((-2, -1), keepdim=True)
    return mean + factor * (x - mean)


def colour(x: Tensor, share: float) -> Tensor:
    """Move a share of each colour on: of red to green, to blue, and to red."""
    return (1 - share) * x + share * x.roll(1, dims=1)


IMAGES = {"blur": blur, "contrast": contrast, "colour": colour}
"""What is done to images alone; `colour` to those with three channels."""


@settings("drift")
class Appearance(Change):
    """Samples change their looks; the same event again restores them.

    One of another kind or strength comes on top. A class of one's own has `look`.
    """

    labels: list[Natural] = field(default_factory=list)
    """The labels, as the dataset has them, whose samples change; empty for all."""
    tests_only: bool = False
    """Training samples stay as they are, and so does the true concept."""

    @abstractmethod
    def look(self, x: FloatArray, y: int, rng: Generator) -> FloatArray:
        """Return one sample as it looks afterwards: float32, of the same shape.

        ``x`` is turned, if at all, and may be written to; ``y`` is its original label.
        Random draws are the sample's own: each time the same.
        """

    def show(
        self, x: Tensor, labels: IntArray, common: Generator, own: Iterator[Generator]
    ) -> Tensor:
        """Return samples as they look afterwards, shape (n, *shape).

        Draws are from a ``common`` generator, or from each sample's ``own``, of which
        there are n.
        """
        each = zip(x.cpu().numpy(), labels.tolist(), own, strict=True)
        shown = [self.look(sample.copy(), y, rng) for sample, y, rng in each]
        if not shown:
            return x
        return torch.from_numpy(np.stack(shown).astype(np.float32)).to(x.device)

    def change(self, world: World, chosen: BoolArray, occasion: Occasion) -> World:
        """Return the world after it."""
        every = np.arange(world.classes)
        ok = all(label < world.classes for label in self.labels)
        allowed = f"labels from 0 to {world.classes - 1}, or [] for all"
        require(ok, "drift.labels", self.labels, allowed)
        concerned = np.isin(every, self.labels or every)
        mask = chosen[:, None] & concerned
        look = Seen(self._purpose(), occasion.seed, self)
        if not self.tests_only:
            world = _switch(world, "looks", mask, look)
        return _switch(world, "test_looks", mask, look)

    def _purpose(self) -> str:
        """Return what events have in common that do the same to a sample."""
        common = {each.name for each in fields(Appearance)}
        names = [each.name for each in fields(self) if each.name not in common]
        kind = type(self)
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{kind.__module__}.{kind.__qualname__}({values})"


@dataclass(frozen=True)
class Seen:
    """What an event does to samples, in one run."""

    purpose: str
    seed: int
    event: Appearance = field(compare=False, repr=False)

    def show(self, x: Tensor, labels: IntArray, rows: IntArray, part: str) -> Tensor:
        """Return samples as they look after it; see `worlds.world.Look`."""
        purpose = f"{self.purpose}/{part}"
        own = (generator(self.seed, purpose, 0, row) for row in rows.tolist())
        return self.event.show(x, labels, generator(self.seed, self.purpose), own)


def _switch(world: World, trait: str, mask: BoolArray, look: Seen) -> World:
    """Put a look on where it is not, and take it off where it is."""
    numbers = getattr(world, trait)
    after = numbers.copy()
    shown: list[Sequence[object]] = [*world.shown]
    for number in np.unique(numbers[mask]).tolist():
        looks = tuple(each for each in shown[number] if each != look)
        if len(looks) == len(shown[number]):
            looks = (*looks, look)
        if looks not in shown:
            shown.append(looks)
        after[mask & (numbers == number)] = shown.index(looks)
    return replace(world, **{trait: after, "shown": tuple(shown)})


LIMITS = {
    "shift": (-np.inf, np.inf),
    "blur": (0.1, np.inf),
    "failure": (0, 1),
    "colour": (0, 1),
}
"""The least and the largest strength of a corruption; of others 0 and any."""

NEUTRAL = {"scale": 1, "contrast": 1}
"""The strength of a corruption that leaves all as it is; of others 0."""


@settings("drift")
class Corrupt(Appearance):
    """Covariate drift: a corruption of images, or of a table's features."""

    kind: Literal[
        "noise", "shift", "scale", "failure", "blur", "contrast", "colour"
    ] = "noise"
    """Gaussian noise; a value added to the features, which is an image's brightness; a
    factor; sensors that read 0 from now on; and of images alone Gaussian blur, a factor
    of contrast, and colours that go over into the next one."""
    strength: float = 0.5
    """The noise's deviation, the value added, the factor, the share of the sensors that
    fail, the blur's deviation in pixels, the factor, or the share of each colour."""
    features: list[Natural] = field(default_factory=list)
    """The features of a table, or channels of an image, that change; empty for all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        value = self.strength
        low, high = LIMITS.get(self.kind, (0, np.inf))
        words = f"a number from {low} to {high} with drift.kind={self.kind}"
        require(low <= value <= high, "drift.strength", value, words)

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise `ConfigError` if it does not fit inputs of a shape."""
        image = len(shape) == 3
        fits = image and (self.kind != "colour" or shape[0] == 3)
        what = "images" if self.kind != "colour" else "images of three channels"
        allowed = f"noise, shift, scale or failure, or a dataset of {what}"
        asked = f"{self.kind} with inputs of shape {shape}"
        ok = fits or self.kind not in IMAGES
        require(ok, "drift.kind", asked, allowed)
        ok = all(feature < shape[0] for feature in self.features)
        allowed = f"numbers from 0 to {shape[0] - 1}, or [] for all"
        require(ok, "drift.features", self.features, allowed)
        sensors = len(self.features or range(shape[0])) * math.prod(shape[1:])
        ok = self.kind != "failure" or not 0 < self.strength * sensors <= 0.5
        allowed = f"0, or at least {1 / sensors:.2g}: a share of {sensors} sensors"
        require(ok, "drift.strength", self.strength, allowed)

    def change(self, world: World, chosen: BoolArray, occasion: Occasion) -> World:
        """Return the world after it: the same if the strength does nothing."""
        if self.strength == NEUTRAL.get(self.kind, 0):
            return world
        return super().change(world, chosen, occasion)

    def look(self, x: FloatArray, y: int, rng: Generator) -> FloatArray:
        """Return one sample with noise."""
        noise = rng.standard_normal(x.shape, np.float32)
        return x + np.float32(self.strength) * noise

    def show(
        self, x: Tensor, labels: IntArray, common: Generator, own: Iterator[Generator]
    ) -> Tensor:
        """Return samples as they look afterwards; see `Appearance.show`."""
        if self.kind == "noise":
            after = super().show(x, labels, common, own)
        else:
            after = self._corrupted(x, common)
        if not self.features:
            return after
        shown = x.clone()
        shown[:, self.features] = after[:, self.features]
        return shown

    def _corrupted(self, x: Tensor, common: Generator) -> Tensor:
        if self.kind == "shift":
            return x + self.strength
        if self.kind == "scale":
            return x * self.strength
        if self.kind in IMAGES:
            return IMAGES[self.kind](x, self.strength)
        sensors = np.ones(x.shape[1:], np.float32)
        able = np.arange(sensors.size).reshape(sensors.shape)
        able = able[self.features or slice(None)].ravel()
        count = round(self.strength * len(able))
        sensors.ravel()[common.permutation(able)[:count]] = 0
        return x * torch.from_numpy(sensors).to(x.device)
