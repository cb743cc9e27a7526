"""The handwritten digits that scikit-learn brings; nothing to download."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch.nn.functional import interpolate

from cfl_flower.data.reading.files import TestFraction
from cfl_flower.data.reading.pool import Parts, Pool, cached_arrays, pools
from cfl_flower.settings import require_memory, settings


@settings("dataset")
class Digits:
    """The 1,797 handwritten digits that scikit-learn carries; nothing to download."""

    test_fraction: TestFraction = 0.3
    """Share of each class held out for testing, the same samples in every run."""
    size: Annotated[int, Field(ge=8)] = 8
    """Height and width; above 8, enlarged. 28 is MNIST's, for the papers' networks."""
    classes: ClassVar[int] = 10

    def __post_init__(self) -> None:
        require_memory("dataset.size", self.size, 8 * 1797 * self.size**2)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return (1, self.size, self.size)

    def check(self, data_dir: str) -> None:
        """Do nothing: the digits are always there."""

    def load(self, data_dir: str = "") -> tuple[Pool, Pool]:
        """Return pixels in [0, 1] and labels, split within each class."""
        known = f"digits {self.size} {self.test_fraction} {version('scikit-learn')}"
        try:
            # The import of scikit-learn takes a second of every process.
            return pools(cached_arrays(known, self._arrays))
        except OSError:  # nowhere to write: what needs no download needs no folder
            return pools(self._arrays())

    def _arrays(self) -> Parts:
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split

        digits = load_digits()
        images = torch.from_numpy(digits.images[:, None] / 16).float()
        x = interpolate(images, self.size, mode="bilinear").numpy()
        y = digits.target.astype(np.int64)
        x_train, x_test, y_train, y_test = train_test_split(
            x, y, test_size=self.test_fraction, random_state=0, stratify=y
        )
        train = {"x": x_train, "y": y_train}
        test = {"x": x_test, "y": y_test}
        return {"train": train, "test": test}
