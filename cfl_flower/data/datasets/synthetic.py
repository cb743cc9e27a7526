"""FedProx's Synthetic(alpha, beta): a model and inputs of its own per device."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from cfl_flower.data.reading.files import TestFraction, held_out
from cfl_flower.data.reading.pool import Pool, divide, pools
from cfl_flower.seeding import generator
from cfl_flower.settings import (
    Count,
    Natural,
    NonNegative,
    require_memory,
    settings,
)
from cfl_flower.types import IntArray

INPUTS = 60
CLASSES = 10


@settings("dataset")
class Synthetic:
    """Synthetic(alpha, beta) of FedProx (Li et al., 2020), generated, not loaded.

    For device k: u_k ~ N(0, alpha), W_k and b_k ~ N(u_k, 1), B_k ~ N(0, beta),
    v_k ~ N(B_k, 1), x ~ N(v_k, diag(j^-1.2)), y = argmax(softmax(x W_k + b_k)).
    As in FedProx's generator, alpha and beta are standard deviations.
    """

    alpha: NonNegative = 1.0
    """Variance among the devices' models."""
    beta: NonNegative = 1.0
    """Variance among the devices' inputs."""
    devices: Count = 100
    """Number of devices, each the owner of int(lognormal(4, 2)) + 50 samples."""
    data_seed: Natural = 23
    """The data's own seed: every run of a comparison sees the same samples. The total
    swings widely with it."""
    test_fraction: TestFraction = 0.1
    """Share of each device's samples held out for testing."""
    shape: ClassVar[tuple[int, ...]] = (INPUTS,)
    classes: ClassVar[int] = CLASSES

    def __post_init__(self) -> None:
        each = 4 * 450 * (INPUTS + 1)  # bytes, of 450 samples in the mean
        require_memory("dataset.devices", self.devices, each * self.devices)

    def check(self, data_dir: str) -> None:
        """Do nothing: there are no files."""

    def load(self, data_dir: str = "") -> tuple[Pool, Pool]:
        """Return all devices' samples, in the order of the devices."""
        sizes = self.sizes()
        owner = np.repeat(np.arange(self.devices), sizes)
        x = np.empty((len(owner), INPUTS), np.float32)
        y = np.empty(len(owner), np.int64)
        for device, end in enumerate(np.cumsum(sizes)):
            rows = slice(end - sizes[device], end)
            x[rows], y[rows] = self._samples(device, sizes[device])
        test = held_out(owner, self.test_fraction)
        return pools(divide({"x": x, "y": y, "owner": owner}, test))

    def sizes(self) -> IntArray:
        """Return the number of samples of each device."""
        rng = generator(self.data_seed, "sizes")
        return rng.lognormal(4, 2, self.devices).astype(np.int64) + 50

    def _samples(self, device: int, size: int) -> tuple[NDArray[np.float64], IntArray]:
        rng = generator(self.data_seed, "samples", client=device)
        u = rng.normal(0, self.alpha)
        centre = rng.normal(0, self.beta)
        weights = rng.normal(u, 1, (INPUTS, CLASSES))
        bias = rng.normal(u, 1, CLASSES)
        mean = rng.normal(centre, 1, INPUTS)
        # The variance of input j is j^-1.2, so its deviation j^-0.6.
        x = rng.normal(mean, np.arange(1, INPUTS + 1) ** -0.6, (size, INPUTS))
        # The softmax keeps the order of its arguments.
        return x, np.argmax(x @ weights + bias, axis=1)
