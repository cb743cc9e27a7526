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
from cfl_flower.types import FloatArray

UNITS = 2.0 ** np.arange(264, -313, -24)
"""Units of the digits in which a number is sent: a float32 holds one exactly. They go
from sums of squares of the largest float32 numbers to squares of the least."""

BLOCK = 2**14
"""Samples that are added up at a time."""

ROUNDING = 1e-28
"""Share of the squares below which a variance is none."""

SPLIT = 2.0**27 + 1
"""Factor that divides a float64's digits into two halves (Dekker, 1971)."""


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
    """Return digits, (units, 3, d), of counts, sums and squares of d inputs."""
    found = np.zeros((len(UNITS), 3, math.prod(x.shape[1:])))
    for start in range(0, len(x), BLOCK):
        some = as_numbers(x[start : start + BLOCK]).reshape(-1, found.shape[2])
        # numpy adds up pairs of what lies side by side, which rounds less.
        found += _digits_of(np.ascontiguousarray(some.T))
    return carried(found)


def _digits_of(x: FloatArray) -> FloatArray:
    """Return the digits of the sums of inputs of n samples, shape (d, n).

    Numbers far from 0 with little spread differ in their squares' last digits alone.
    They are added up about a number near their mean, and shifted back exactly.
    """
    known = np.isfinite(x)
    counts = known.sum(axis=1, dtype=np.float64)
    means = np.where(known, x, 0).sum(axis=1) / np.maximum(counts, 1)
    near = means.astype(np.float32).astype(np.float64)
    rest = np.where(known, x - near[:, None], 0)
    totals = rest.sum(axis=1)
    sums = to_digits(np.stack([counts, totals, (rest * rest).sum(axis=1)]))
    sums[:, 1] += to_digits(counts * near)
    sums[:, 2] += _more_squares(counts, totals, near)
    return sums


def _more_squares(counts: FloatArray, totals: FloatArray, shift: FloatArray) -> Any:
    """Return the digits of what squares gain where numbers are shifted by a float32."""
    terms = []
    for factor in (2 * totals, counts * shift):
        high = factor * SPLIT - (factor * SPLIT - factor)
        # Neither product has more digits than a float64.
        terms += [high * shift, (factor - high) * shift]
    return sum(map(to_digits, terms))


def to_digits(numbers: FloatArray) -> FloatArray:
    """Return the digits of numbers, one row a unit, which add up without rounding.

    Examples
    --------
    >>> one, other = to_digits(np.array([2.0**80, -0.1])), to_digits(np.array([1, 0.3]))
    >>> from_digits(one + other).tolist() == [2.0**80 + 1, 0.3 - 0.1]
    True
    """
    digits = np.zeros((len(UNITS), *numbers.shape))
    largest = np.abs(numbers).max(initial=0)
    for place in np.flatnonzero(2 * largest >= UNITS):
        digits[place] = np.rint(numbers / UNITS[place])
        numbers = numbers - digits[place] * UNITS[place]
        if not numbers.any():
            break
    return digits


def carried(digits: FloatArray) -> FloatArray:
    """Return the same numbers with digits that a float32 holds, but for the first."""
    found = digits.copy()
    for place in range(len(found) - 1, 0, -1):
        more = np.rint(found[place] / 2**24)
        found[place] -= more * 2**24
        found[place - 1] += more
    return found


def from_digits(digits: FloatArray) -> FloatArray:
    """Return the numbers that sums of digits stand for."""
    return np.tensordot(UNITS, carried(digits), 1)


def are_possible(sums: FloatArray) -> bool:
    """Return whether some samples can have these counts, sums and squares."""
    counts, totals, squares = sums
    whole = bool(np.all((counts >= 0) & (counts == np.rint(counts)) & (squares >= 0)))
    # Cauchy and Schwarz, but for rounding, and for squares below the least unit.
    most = counts * (squares * (1 + 1e-9) + UNITS[-1])
    return whole and bool(np.all(totals**2 <= most))


def with_sums(inputs: Sequence[Input], sums: FloatArray, fills: bool) -> list[Input]:
    """Return inputs with mean and deviation, by the digits of sums over all clients.

    ``fills`` says whether the mean stands for numbers that are missing. Raises
    `ConfigError` if nobody has an input.
    """
    counts, _, squares = from_digits(sums)
    if not counts.all():
        place = int(np.argmin(counts))
        lacking = f"no client has input {inputs[place].get('column', place)}"
        raise ConfigError(f"{lacking} to train on, so there is no mean; leave it out")
    means, variances = _moments_of(sums)
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


def _moments_of(sums: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the means and the variances of d inputs, by the digits of their sums."""
    counts, totals, _ = from_digits(sums)
    near = (totals / counts).astype(np.float32).astype(np.float64)
    # The totals of what exceeds a number near the mean, and what rounding takes there.
    beyond = sums[:, 1] - to_digits(counts * near)
    totals = from_digits(beyond)
    rest = from_digits(beyond - to_digits(totals))
    squares = sums[:, 2] - _more_squares(counts, totals, near)
    squares -= _more_squares(0 * counts, rest, near)
    more = totals / counts
    return near + more, from_digits(squares) / counts - more**2
