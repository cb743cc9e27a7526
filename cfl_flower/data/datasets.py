"""What a dataset is to everybody else, and the digits that need no download."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import torch
from torch.nn.functional import interpolate

from cfl_flower.data.pool import Pool
from cfl_flower.settings import require


class Dataset(Protocol):
    """Settings of a dataset that know its shape without loading it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input."""

    @property
    def classes(self) -> int:
        """Number of labels, L."""

    def check(self, data_dir: str) -> None:
        """Raise `ConfigError` if the files are not there, naming those expected."""

    def load(self, data_dir: str) -> tuple[Pool, Pool]:
        """Return the samples for training and those for testing.

        Raises
        ------
        ConfigError
            If a file cannot be read.
        """


@dataclass(frozen=True)
class Digits:
    """The 1,797 handwritten digits that scikit-learn carries; nothing to download.

    Attributes
    ----------
    test_fraction : float
        Share of each class held out for testing, the same samples in every run.
    size : int
        Height and width; above 8, enlarged. 28 is MNIST's, for the papers' networks.
    """

    test_fraction: float = 0.3
    size: int = 8

    classes: ClassVar[int] = 10

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return (1, self.size, self.size)

    def __post_init__(self) -> None:
        require(
            0.01 <= self.test_fraction <= 0.99,
            "dataset.test_fraction",
            self.test_fraction,
            "a number from 0.01 to 0.99",
        )
        require(self.size >= 8, "dataset.size", self.size, "at least 8")

    def check(self, data_dir: str) -> None:
        """Do nothing: the digits are always there."""

    def load(self, data_dir: str = "") -> tuple[Pool, Pool]:
        """Return pixels in [0, 1] and labels, split within each class."""
        # Half a second, which a device with its own data would pay for every message.
        from sklearn.datasets import load_digits  # noqa: PLC0415
        from sklearn.model_selection import train_test_split  # noqa: PLC0415

        del data_dir
        digits = load_digits()
        images = torch.from_numpy(digits.images[:, None] / 16).float()
        x = interpolate(images, self.size, mode="bilinear").numpy()
        y = digits.target.astype(np.int64)
        x_train, x_test, y_train, y_test = train_test_split(
            x, y, test_size=self.test_fraction, random_state=0, stratify=y
        )
        train, test = {"x": x_train, "y": y_train}, {"x": x_test, "y": y_test}
        return Pool.from_arrays(train), Pool.from_arrays(test)
