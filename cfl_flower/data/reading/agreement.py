"""What clients agree on before a run, put to their data, and the scale of inputs.

Each tells its counts, sums and squares. Only sums over clients are needed, so that
these may come behind masks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfl_flower.data.reading.pool import Parts
from cfl_flower.data.reading.scaling import Input, described, with_inputs
from cfl_flower.data.reading.words import kinds_of, pairs_of, require_alike
from cfl_flower.errors import ConfigError
from cfl_flower.types import FloatArray, Vector

UNITS = 2.0 ** np.arange(264, -313, -24)
"""Units of the digits in which a number is sent: a float32 holds one exactly. They go
from sums of squares of the largest float32 numbers to squares of the least."""

BLOCK = 2**14
"""Samples that are added up at a time."""

ROUNDING = 3e-14
"""Share of the squares below which a variance is none."""


def in_agreed_order(parts: Parts, agreed: Sequence[Input], called: str) -> Parts:
    """Return the parts of a table with the inputs that were agreed on, in their order.

    A category that the table has not is 0 everywhere; one that nobody agreed on has no
    input. Raises `ConfigError` if columns differ.
    """
    own = pairs_of(described(parts))
    wanted = pairs_of(agreed)
    if not own or own == wanted:
        return parts
    require_alike("the run", kinds_of(wanted), called, kinds_of(own))
    place = {key: number for number, key in enumerate(own)}
    places = np.array([place.get(key, -1) for key in wanted])
    return with_inputs(parts, lambda x: np.where(places >= 0, x[:, places], 0))


def rescaled(parts: Parts, agreed: Sequence[Input]) -> Parts:
    """Return the parts with their inputs filled, shifted and scaled, in float32."""
    numbers = [
        [of.get("missing", 0.0), of.get("mean", 0.0), of.get("deviation", 1.0)]
        for of in agreed
    ]
    shape = parts["train"]["x"].shape[1:]
    missing, mean, deviation = np.array(numbers).T.reshape(3, *shape)

    def scaled(x: NDArray[Any]) -> NDArray[np.float32]:
        x = as_numbers(x)
        return ((np.where(np.isnan(x), missing, x) - mean) / deviation).astype("f4")

    return with_inputs(parts, scaled)


def as_numbers(x: NDArray[Any]) -> FloatArray:
    """Return inputs in float64, pixels from 0 to 1."""
    return x / np.float64(255 if x.dtype == np.uint8 else 1)


def sums_of(x: NDArray[Any]) -> FloatArray:
    """Return counts, sums and squares of d inputs, shape (3, d), of n samples."""
    found = np.zeros((3, math.prod(x.shape[1:])))
    for start in range(0, len(x), BLOCK):
        some = as_numbers(x[start : start + BLOCK]).reshape(-1, found.shape[1])
        known = np.isfinite(some)
        some = np.where(known, some, 0)
        found += [of.sum(axis=0) for of in (known, some, some * some)]
    return found


def to_digits(sums: FloatArray) -> Vector:
    """Return numbers as a vector of digits, which can be added up without rounding.

    Examples
    --------
    >>> one, other = to_digits(np.array([2.0**80, -0.1])), to_digits(np.array([1, 0.3]))
    >>> from_digits(one.astype(np.float64) + other).tolist() == [2.0**80 + 1, 0.3 - 0.1]
    True
    """
    rest = sums.ravel()
    digits = []
    for unit in UNITS:
        digits.append(np.trunc(rest / unit))
        rest = rest - digits[-1] * unit
    return np.concatenate(digits).astype(np.float32)


def from_digits(digits: FloatArray) -> FloatArray:
    """Return the numbers that sums of digits stand for."""
    return UNITS @ digits.reshape(len(UNITS), -1)


def are_possible(sums: FloatArray) -> bool:
    """Return whether some samples can have these counts, sums and squares."""
    counts, totals, squares = sums
    whole = bool(np.all((counts >= 0) & (counts == np.rint(counts)) & (squares >= 0)))
    # Cauchy and Schwarz, but for rounding, and for squares below the least unit.
    most = counts * (squares * (1 + 1e-9) + UNITS[-1])
    return whole and bool(np.all(totals**2 <= most))


def with_sums(inputs: Sequence[Input], sums: FloatArray, fills: bool) -> list[Input]:
    """Return inputs with mean and deviation, by the sums over all clients.

    ``fills`` says whether the mean stands for numbers that are missing. Raises
    `ConfigError` if nobody has an input.
    """
    counts, totals, squares = sums
    if not counts.all():
        place = int(np.argmin(counts))
        lacking = f"no client has input {inputs[place].get('column', place)}"
        raise ConfigError(f"{lacking} to train on, so there is no mean; leave it out")
    means = totals / counts
    variances = squares / counts - means**2
    # The least that is told from the rounding of squares. A narrow column far from 0 is
    # scaled by that, so that a large constant's rounding is small, too.
    least = ROUNDING * squares / counts
    narrow = np.maximum(1, least)
    deviations = np.sqrt(np.where(variances <= least, narrow, variances))
    found = []
    for each, mean, deviation in zip(inputs, means, deviations, strict=True):
        own = each | Input(mean=float(mean), deviation=float(deviation))
        if fills and "category" not in each:
            own["missing"] = own["mean"]
        found.append(own)
    return found
