"""Inputs shifted and scaled, by numbers that a recipe gives or by their own."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfl_flower.data.pool import PARTS, Parts
from cfl_flower.settings import require


def check_scaling(normalise: list[float] | None, standardise: bool) -> None:
    """Require a mean and a deviation, or none where inputs are standardised.

    Raises
    ------
    ConfigError
    """
    if normalise is None:
        return
    allowed = "[mean, deviation above 0] of pixels from 0 to 1, or null"
    ok = len(normalise) == 2 and normalise[1] > 0
    require(ok, "dataset.normalise", normalise, allowed)
    allowed = "null with dataset.standardise=true"
    require(not standardise, "dataset.normalise", normalise, allowed)


def normalised(parts: Parts, mean: float, deviation: float) -> Parts:
    """Shift and scale all inputs alike; of pixels in bytes, once they are in [0, 1]."""

    def scaled(x: NDArray[Any]) -> NDArray[np.float32]:
        top = 255 if x.dtype == np.uint8 else 1
        found: NDArray[np.float32]
        found = (x - np.float32(top * mean)) / np.float32(top * deviation)
        return found

    return {part: {**of, "x": scaled(of["x"])} for part, of in parts.items()}


def standardised(parts: Parts) -> Parts:
    """Shift and scale every input to mean 0 and deviation 1 over both sets.

    Divides by the deviation + 0.001, as FedProx's recipes do.
    """
    x = np.concatenate([parts[part]["x"] for part in PARTS]).astype(np.float32)
    mean, deviation = (f(axis=0, dtype=np.float64) for f in (x.mean, x.std))
    x -= mean.astype(np.float32)
    x /= (deviation + 0.001).astype(np.float32)
    both = zip(PARTS, np.split(x, [len(parts["train"]["x"])]), strict=True)
    return {part: {**parts[part], "x": own} for part, own in both}


def standardised_by_training(parts: Parts) -> Parts:
    """Shift and scale every input to mean 0 and deviation 1 of the training set.

    A constant input becomes 0.
    """
    x = parts["train"]["x"]
    mean, deviation = (f(axis=0, dtype=np.float64) for f in (x.mean, x.std))
    scale = np.where(deviation > 0, deviation, 1)
    # In float64, for inputs such as seconds since 1970.
    return {
        part: {**of, "x": ((of["x"] - mean) / scale).astype(np.float32)}
        for part, of in parts.items()
    }
