"""What one client holds in one round, and how its samples are shown."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from cfl_flower.data.reading.agreement import sums_of
from cfl_flower.data.reading.pool import Pool
from cfl_flower.data.worlds.world import Look
from cfl_flower.types import BoolArray, FloatArray, IntArray


def rotate(images: Tensor, degrees: float) -> Tensor:
    """Turn images counter-clockwise.

    Quarter turns of square images are exact; others interpolate, with 0 outside.

    Parameters
    ----------
    images : Tensor, shape (n, channels, height, width), float32
    degrees : float
    """
    if degrees % 360 == 0:
        return images
    if degrees % 90 == 0 and images.shape[-1] == images.shape[-2]:
        return torch.rot90(images, int(degrees // 90), (-2, -1))
    angle = math.radians(degrees)
    (height, width) = images.shape[-2:]
    cosine = math.cos(angle)
    sine = math.sin(angle)
    rows = [[cosine, -sine * height / width, 0], [sine * width / height, cosine, 0]]
    turn = torch.tensor(rows, device=images.device)
    size = list(images.shape)
    grid = affine_grid(turn.expand(size[0], 2, 3), size, align_corners=False)
    return grid_sample(images, grid, align_corners=False)


class Form(NamedTuple):
    """How some samples of one pool are shown."""

    degrees: float = 0.0
    """Rotation of the images."""
    looks: tuple[Look, ...] = ()
    """Transformations of the samples."""
    part: str = "train"

    def show(self, pool: Pool, rows: IntArray) -> Tensor:
        """Return the samples in some rows of the pool, shape (n, *shape)."""
        at = torch.from_numpy(rows).to(pool.x.device)
        x = rotate(pool.inputs(at), self.degrees)
        for look in self.looks:
            x = look.show(x, pool.labels[rows], rows, self.part)
        return x


@dataclass(frozen=True)
class View:
    """A client's data in one round, as indices into the shared pools.

    They count through the pool once for each of ``turns``, one after the other.
    """

    train_pool: Pool
    test_pool: Pool
    train_indices: IntArray
    test_indices: IntArray
    degrees: float
    """Rotation of the images."""
    relabel: IntArray
    """Label that the client gives to samples of each label, shape (L,)."""
    alike: float = 1.0
    """Share of all clients whose test samples are shown in the same way."""
    turns: tuple[float, ...] = (0.0,)
    """Rotations that come on top, of the distributions that the client mixes."""
    tests: str = "own"
    """Samples of the reported accuracy (`Partition.tests`)."""
    held_out: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    """Indices in the training pool of the samples for validation."""
    looks: IntArray | None = None
    """The numbers of how the training samples of each label look, shape (L,); None
    where all look as recorded."""
    test_looks: IntArray | None = None
    """The same of test samples."""
    shown: tuple[tuple[Look, ...], ...] = ((),)
    """Transformations that make up each look."""
    earlier: View | None = None
    """View of the samples that a gradual change has not reached: their indices count on
    through the pool, after the last of ``turns``."""
    late: BoolArray | None = None
    """Whether the change has not reached each sample of the test pool, shape (n,)."""

    @property
    def labels(self) -> IntArray:
        """Training labels as the client calls them, shape (n,)."""
        return self._of_labels("relabel", self.train_pool, self.train_indices)

    @property
    def test_labels(self) -> IntArray:
        """Test labels as the client calls them, shape (n,)."""
        return self._of_labels("relabel", self.test_pool, self.test_indices)

    @property
    def train_parts(self) -> IntArray:
        """Which of ``turns`` each training sample has, shape (n,)."""
        return self.train_indices // len(self.train_pool.labels) % len(self.turns)

    def train(self) -> tuple[Tensor, Tensor]:
        """Return the training samples and labels."""
        return self._take(self.train_pool, "train", self.labels)

    def sums(self) -> FloatArray:
        """Return digits of counts, sums and squares of training inputs as stored."""
        rows = self.train_indices % len(self.train_pool.labels)
        return sums_of(self.train_pool.x.cpu().numpy()[rows])

    def test(self) -> tuple[Tensor, Tensor]:
        """Return the test samples and labels."""
        return self._take(self.test_pool, "test", self.test_labels)

    def everything(self) -> View:
        """Return the view of one who tests on the whole test set, or its labels."""
        size = len(self.test_pool.labels)
        indices = np.arange(size * len(self.turns))
        if self.tests == "labels":
            held = self.train_pool.labels_at(self.train_indices)
            indices = indices[np.isin(self.test_pool.labels_at(indices), held)]
        if self.late is not None:
            count = size * len(self.turns)
            indices += np.where(self.late[indices % size], count, 0)
        return replace(self, test_indices=indices)

    def validation(self) -> View:
        """Return the view of one who tests on the samples for validation."""
        return replace(
            self,
            test_pool=self.train_pool,
            test_indices=self.held_out,
            test_looks=self.looks,
            earlier=None if self.earlier is None else self.earlier.validation(),
            late=None,
        )

    @property
    def kinds(self) -> int:
        """The most forms that test samples have."""
        looks = 1 if self.test_looks is None else len(np.unique(self.test_looks))
        before = 0 if self.earlier is None else self.earlier.kinds
        return looks * len(self.turns) + before

    def _of_labels(self, trait: str, pool: Pool, indices: IntArray) -> IntArray:
        """Return what samples have of a trait that labels have, shape (n,)."""
        own = getattr(self, trait)
        labels = pool.labels_at(indices)
        found: IntArray = np.zeros_like(indices) if own is None else own[labels]
        if self.earlier is None:
            return found
        late = indices >= len(pool.labels) * len(self.turns)
        before = self.earlier._of_labels(trait, pool, indices)
        return np.where(late, before, found)

    def by_form(self, part: str) -> Iterator[tuple[Form, IntArray, IntArray]]:
        """Yield each form of a part, the rows of its pool that have it, and places.

        The part is "train" or "test"; the places are those among the part's indices.
        """
        tests = part == "test"
        pool = self.test_pool if tests else self.train_pool
        indices = self.test_indices if tests else self.train_indices
        # Samples for validation are tested, and lie in the pool for training.
        part = "train" if pool is self.train_pool else "test"
        changed = self.looks is not None or self.test_looks is not None
        if not changed and len(self.turns) == 1 and self.earlier is None:
            # As nearly always: with many clients the search below would show.
            if len(indices):
                degrees = (self.degrees + self.turns[0]) % 360
                form = Form(degrees, self.shown[0], part)
                yield form, indices, np.arange(len(indices))
            return
        looks = self._of_labels("test_looks" if tests else "looks", pool, indices)
        turns = indices // len(pool.labels)
        rows = indices % len(pool.labels)
        numbers = turns * len(self.shown) + looks
        for number in np.unique(numbers).tolist():
            turn, look = divmod(number, len(self.shown))
            late, turn = divmod(turn, len(self.turns))
            view = self.earlier if late and self.earlier else self
            degrees = (view.degrees + self.turns[turn]) % 360
            places = np.flatnonzero(numbers == number)
            yield Form(degrees, self.shown[look], part), rows[places], places

    def _take(self, pool: Pool, part: str, labels: IntArray) -> tuple[Tensor, Tensor]:
        found = []
        for form, rows, places in self.by_form(part):
            found.append((form.show(pool, rows), places))
        x = in_place(found) if found else pool.inputs(slice(0))
        return x, torch.from_numpy(labels).to(pool.x.device)


def in_place(parts: Sequence[tuple[Tensor, IntArray]]) -> Tensor:
    """Return the rows of several tensors, each row in the place that is beside it."""
    tensors, places = zip(*parts, strict=True)
    if len(tensors) == 1:
        return tensors[0]
    order = np.concatenate(places).argsort()
    together = torch.cat(tensors)
    return together[torch.from_numpy(order).to(together.device)]
