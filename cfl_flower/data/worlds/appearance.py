"""Drifts of how samples look: of all, of some labels' (P(x|y)), or of tests.

Samples look as through other sensors, in other light, or in noise, each with a strength
of its own unit. Values are not clipped to [0, 1], since a dataset may have been
normalised.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from itertools import product
from typing import Literal

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from cfl_flower.data.worlds.drift import Change, Occasion
from cfl_flower.data.worlds.partition import Angles
from cfl_flower.data.worlds.view import rotate
from cfl_flower.data.worlds.world import Look, World, alter, turned
from cfl_flower.errors import ConfigError, refused
from cfl_flower.seeding import generator, no_common_draws
from cfl_flower.settings import Natural, require, settings
from cfl_flower.types import BoolArray, ClientId, FloatArray, IntArray

REHEARSED = 10
"""Labels of which a look is tried on a sample before a run."""


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
        with no_common_draws(f"drift: {type(self).__name__}.look"):
            shown = [self.look(sample.copy(), y, rng) for sample, y, rng in each]
        if not shown:
            return x
        return torch.from_numpy(np.stack(shown).astype(np.float32)).to(x.device)

    def rehearse(self, shape: tuple[int, ...], classes: int) -> None:
        """Raise `ConfigError` if `look` fails for samples of noise, shown twice."""
        labels = np.array(self.labels or range(classes))[:REHEARSED]
        what = f"drift: {type(self).__name__}.look"

        def draws(client: ClientId = "common") -> Generator:
            return generator(0, what, 0, client)

        noise = draws("noise").random((len(labels), *shape), np.float32)
        x = torch.from_numpy(noise)
        found = []
        with refused(what, f"return one sample of shape {shape}"):
            for _ in range(2):
                # What it remembers of these is forgotten.
                trial = deepcopy(self)
                own = map(draws, labels.tolist())
                found.append(trial.show(x, labels, draws(), own))
            if found[0].shape != x.shape:
                raise ValueError(f"its shape is {tuple(found[0].shape[1:])}")
        if not torch.equal(*(each.nan_to_num() for each in found)):
            raise ConfigError(
                f"{what} gives a sample another look each time; draw from the rng that "
                "it gets, which is the sample's own"
            )

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

    def joined(self, looks: Sequence[Look]) -> Sequence[Look]:
        """Return looks with this one, or without it if they have it."""
        others = tuple(each for each in looks if each != self)
        return others if len(others) < len(looks) else (*looks, self)


def _switch(world: World, trait: str, mask: BoolArray, look: Seen | Pattern) -> World:
    """Let a look join those that there are."""
    numbers = getattr(world, trait)
    after = numbers.copy()
    shown: list[Sequence[Look]] = [*world.shown]
    for number in np.unique(numbers[mask]).tolist():
        looks = look.joined(shown[number])
        if looks not in shown:
            shown.append(looks)
        after[mask & (numbers == number)] = shown.index(looks)
    return replace(world, **{trait: after, "shown": tuple(shown)})


@settings("drift")
class Corrupt(Appearance):
    """Covariate drift: a corruption of images, or of a table's features."""

    kind: Literal["noise", "shift", "failure"] = "noise"
    """Gaussian noise; a value added to the features, which is an image's brightness;
    sensors that read 0 from now on."""
    strength: float = 0.5
    """The noise's deviation, the value added, or the share of the sensors that fail."""
    features: list[Natural] = field(default_factory=list)
    """The features of a table, or channels of an image, that change; empty for all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        least = -np.inf if self.kind == "shift" else 0
        most = 1 if self.kind == "failure" else np.inf
        allowed = f"a number from {least} to {most} with drift.kind={self.kind}"
        ok = least <= self.strength <= most
        require(ok, "drift.strength", self.strength, allowed)

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise `ConfigError` if it does not fit inputs of a shape."""
        ok = all(feature < shape[0] for feature in self.features)
        allowed = f"numbers from 0 to {shape[0] - 1}, or [] for all"
        require(ok, "drift.features", self.features, allowed)
        sensors = len(self.features or range(shape[0])) * math.prod(shape[1:])
        ok = self.kind != "failure" or not 0 < self.strength * sensors <= 0.5
        allowed = f"0, or at least {1 / sensors:.2g}: a share of {sensors} sensors"
        require(ok, "drift.strength", self.strength, allowed)

    def change(self, world: World, chosen: BoolArray, occasion: Occasion) -> World:
        """Return the world after it: the same if the strength does nothing."""
        return super().change(world, chosen, occasion) if self.strength else world

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
        sensors = np.ones(x.shape[1:], np.float32)
        able = np.arange(sensors.size).reshape(sensors.shape)
        able = able[self.features or slice(None)].ravel()
        count = round(self.strength * len(able))
        sensors.ravel()[common.permutation(able)[:count]] = 0
        return x * torch.from_numpy(sensors).to(x.device)


@dataclass(frozen=True)
class Pattern:
    """A turn of images, and channels of which every pixel is 1 (FLUX)."""

    degrees: float = 0.0
    channels: tuple[int, ...] = ()

    def show(self, x: Tensor, labels: IntArray, rows: IntArray, part: str) -> Tensor:
        """Return images as they look after it; see `worlds.world.Look`."""
        shown = rotate(x, self.degrees)
        if self.channels:
            shown = shown.clone()
            shown[:, list(self.channels)] = 1
        return shown

    def joined(self, looks: Sequence[Look]) -> Sequence[Look]:
        """Return looks with this one, which is one with another pattern before it.

        So images that look alike have equal looks, whatever came first.
        """
        last = looks[-1] if looks else None
        before = last if isinstance(last, Pattern) else Pattern()
        others = looks[:-1] if last is before else looks
        channels = tuple(sorted({*before.channels, *self.channels}))
        both = Pattern(float(turned(before.degrees, self.degrees)), channels)
        return others if both == Pattern() else (*others, both)


@settings("drift")
class DrawPatterns(Change):
    """Covariate drift: each client draws how its images are turned and coloured (FLUX).

    Once more, the new patterns come on top: angles add up, and full channels stay full.
    """

    rotations: Angles = field(default_factory=lambda: [0.0, 90.0, 180.0, 270.0])
    """Degrees, of which each pattern has one."""
    channels: list[Natural] = field(default_factory=list)
    """Channels, of which each pattern has one full: 0, 1 and 2 for red, green and blue;
    empty for images in their own colours."""
    random_labels: Natural = 0
    """Number of labels, the same ones for all clients, for each of which a client draws
    a pattern of its own, so that P(x|y) differs; 0 for one pattern for all its
    images."""

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise `ConfigError` if it does not fit inputs of a shape."""
        require(len(shape) == 3, "drift", "patterns", "images, or another drift")
        # Full of ones, the only channel of a grey image would show nothing.
        ok = all(channel < shape[0] > 1 for channel in self.channels)
        allowed = "[], or channels of images in colour (MNIST: dataset.colour=true)"
        require(ok, "drift.channels", self.channels, allowed)

    def change(self, world: World, chosen: BoolArray, occasion: Occasion) -> World:
        """Return the world after it."""
        channels: list[tuple[int, ...]] = [(each,) for each in self.channels] or [()]
        kinds = list(product(self.rotations, channels))
        among = occasion.draw_labels(self.random_labels or world.classes, world.classes)
        columns = world.classes if self.random_labels else 1
        drawn = occasion.rng.integers(len(kinds), size=(world.clients, columns))
        able = chosen[:, None] & np.isin(np.arange(world.classes), among)
        for number, (degrees, full) in enumerate(kinds):
            mask = able & (drawn == number)
            look = Pattern(degrees, full)
            if not self.random_labels:
                # All of a client's images: its own turn, of which there is one.
                turns = turned(world.degrees, degrees)
                world = alter(world, mask.any(axis=1), degrees=turns)
                look = Pattern(channels=full)
            world = _switch(world, "looks", mask, look)
            world = _switch(world, "test_looks", mask, look)
        return world
