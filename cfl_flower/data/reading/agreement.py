"""What clients agree on before a run: what the inputs and classes are, and their scale.

Each tells what it has in words, or its counts, sums and squares in numbers. Only sums
over clients are needed, so that these may come behind masks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypedDict

from cfl_flower.data.reading.names import numbered_names
from cfl_flower.data.reading.pool import Parts
from cfl_flower.data.reading.scaling import Input, described, with_inputs
from cfl_flower.errors import ConfigError
from cfl_flower.types import ClientId, FloatArray, Vector

UNITS = 2.0 ** np.arange(240, -73, -24)
"""Units of the digits in which a number is sent: a float32 holds one exactly, and the
largest is beyond the square of a float32."""

BLOCK = 2**14
"""Samples that are added up at a time."""

ROUNDING = 1e-12
"""Share of the squares below which a variance is none."""


class Words(TypedDict):
    """What a device says of its data, in words."""

    shape: list[int]
    classes: list[str]
    inputs: list[tuple[str, str | None]]
    """The column and the category, if it has some, of each input of a table."""


def agree(words: Mapping[ClientId, Words]) -> dict[str, Any]:
    """Return the settings of a dataset of which some devices have parts.

    Columns are in the order of the first. Raises `ConfigError` if they do not have the
    same ones, in numbers or in texts, or inputs of different shapes.

    Examples
    --------
    >>> one = Words(shape=[1], classes=["no"], inputs=[("city", "Ulm")])
    >>> two = Words(shape=[1], classes=["yes"], inputs=[("city", "Bern")])
    >>> found = agree({"a": one, "b": two})
    >>> found["names"], [each["category"] for each in found["agreed"]]
    (['no', 'yes'], ['Bern', 'Ulm'])
    """
    (first, ours), *others = words.items()
    shapes = {client: {"x": f"shape {of['shape']}"} for client, of in words.items()}
    kinds = {c: kinds_of(of["inputs"]) or shapes[c] for c, of in words.items()}
    for client, _ in others:
        require_alike(first, kinds[first], client, kinds[client])
    told: dict[str, list[str]] = {column: [] for column, _ in ours["inputs"]}
    for column, text in chain.from_iterable(of["inputs"] for of in words.values()):
        told[column] += [] if text is None else [text]
    agreed: list[Input] = []
    for column, texts in told.items():
        found = numbered_names([np.asarray(texts, str)], f"column {column}:")[0]
        named = [Input(column=column, category=text) for text in found.tolist()]
        agreed += named or [Input(column=column)]
    classes = [np.asarray(of["classes"], str) for of in words.values()]
    names = numbered_names(classes, "the classes")[0].tolist()
    shape = [len(agreed)] if agreed else ours["shape"]
    return {"shape": shape, "classes": len(names), "names": names, "agreed": agreed}


def pairs_of(inputs: Sequence[Input]) -> list[tuple[str, str | None]]:
    """Return the column and the category, if it has some, of each input."""
    return [(each.get("column", ""), each.get("category")) for each in inputs]


def kinds_of(pairs: Sequence[tuple[str, str | None]]) -> dict[str, str]:
    """Return whether each column has texts or numbers."""
    return {name: "numbers" if text is None else "texts" for name, text in pairs}


def require_alike(
    one: object, ours: Mapping[str, str], other: object, theirs: Mapping[str, str]
) -> None:
    """Raise `ConfigError` for a column that two do not both have in one kind."""
    if differ := sorted(name for name, _ in ours.items() ^ theirs.items()):
        kinds = [of.get(differ[0], "no such column") for of in (ours, theirs)]
        told = f"column {differ[0]}: {one} has {kinds[0]}, {other} has {kinds[1]}"
        remedy = "write them alike, or name others in dataset.features"
        raise ConfigError(f"{told}; {remedy}")


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
        found: NDArray[np.float32]
        found = ((np.where(np.isnan(x), missing, x) - mean) / deviation).astype("f4")
        return found

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
    found: FloatArray = UNITS @ digits.reshape(len(UNITS), -1)
    return found


def are_possible(sums: FloatArray) -> bool:
    """Return whether some samples can have these counts, sums and squares."""
    counts, totals, squares = sums
    whole = bool(np.all((counts >= 0) & (counts == np.rint(counts)) & (squares >= 0)))
    # Cauchy and Schwarz, but for rounding.
    return whole and bool(np.all(totals**2 <= counts * squares * (1 + 1e-9)))


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
    constant = variances <= ROUNDING * squares / counts
    deviations = np.sqrt(np.where(constant, 1, variances))
    found = []
    for each, mean, deviation in zip(inputs, means, deviations, strict=True):
        own = each | Input(mean=float(mean), deviation=float(deviation))
        if fills and "category" not in each:
            own["missing"] = own["mean"]
        found.append(own)
    return found
