"""Inputs shifted and scaled, by numbers that a recipe gives or by their own."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypedDict

from cfl_flower.data.reading.pool import PARTS, Parts
from cfl_flower.errors import ConfigError
from cfl_flower.settings import require

Scaling: TypeAlias = list[float] | list[list[float]]
"""A mean and a deviation: two numbers, or two lists with a number for each channel."""

ROUNDING = 1e-14
"""Share of a mean below which a deviation is none."""


class Input(TypedDict, total=False):
    """What an input of the network is: (value - mean) / deviation."""

    column: str
    """Column of a table."""
    category: str
    """The text of the column for which the value is 1, else 0; absent for numbers."""
    mean: float
    deviation: float
    missing: float
    """The value in the place of one that is missing."""


def described(parts: Parts) -> list[Input]:
    """Return what the inputs are; nothing where no columns stand behind them."""
    inputs = parts["train"].get("inputs", np.array([]))
    return [json.loads(text) for text in inputs.tolist()]


def noted(parts: Parts, **numbers: NDArray[np.float64]) -> Parts:
    """Return the parts with a number more in what is known of each input, by its name.

    Texts have nothing in the place of a missing one.
    """
    inputs: list[dict[str, Any]] = [{**each} for each in described(parts)]
    for name, values in numbers.items():
        every = np.broadcast_to(values, len(inputs)).tolist() if inputs else []
        for each, value in zip(inputs, every, strict=True):
            if name != "missing" or "category" not in each:
                each[name] = value
    beside = {"inputs": np.asarray(list(map(json.dumps, inputs)))} if inputs else {}
    return {part: {**of, **beside} for part, of in parts.items()}


def check_scaling(
    normalise: Scaling | None, standardise: bool, shape: tuple[int, ...]
) -> None:
    """Require a mean and a deviation, or none where inputs are standardised.

    The ``shape`` of an input, channels first, may be () while it is not known. Raises
    `ConfigError`.
    """
    if normalise is None:
        return
    both = [np.atleast_1d(each) for each in normalise]
    sizes = {each.size for each in both}
    channels = shape[0] if shape else max(sizes, default=1)
    known = {1}, {channels}, {math.prod(shape)}
    ok = len(both) == 2 and sizes in known and bool((both[1] > 0).all())
    allowed = (
        "[mean, deviation above 0] of pixels from 0 to 1, or null; each is a number, "
        f"or a list with one for each channel{f', of {channels}' * bool(shape)}"
    )
    require(ok, "dataset.normalise", normalise, allowed)
    allowed = "null with dataset.standardise=true"
    require(not standardise, "dataset.normalise", normalise, allowed)


def scale_of(x: NDArray[Any]) -> str | None:
    """Return whether inputs are bytes, read as 0 to 1, or numbers far outside of that.

    None for numbers that may stand beside bytes.
    """
    if x.dtype == np.uint8:
        return "bytes"
    least, most = (float(f.reduce(x, axis=None)) for f in (np.fmin, np.fmax))
    return None if -0.5 <= least <= most <= 1.5 else "numbers"


def refuse_two_scales(where: str, inputs: Mapping[str, NDArray[Any]]) -> None:
    """Refuse bytes, which are read as 0 to 1, beside numbers far outside of that.

    ``where`` is what the line calls the dataset. Raises `ConfigError`.
    """
    read = [name for name, x in inputs.items() if x.dtype == np.uint8]
    for name, x in inputs.items() if read else ():
        if scale_of(x) == "numbers":
            raise ConfigError(
                f"{where}: {read[0]} has bytes (uint8), read as 0 to 1, but {name} has "
                f"other numbers from {np.nanmin(x):g} to {np.nanmax(x):g}; save all in "
                "one type and scale"
            )


def with_inputs(parts: Parts, changed: Callable[[NDArray[Any]], NDArray[Any]]) -> Parts:
    """Return the parts with what a function makes of their inputs."""
    return {part: {**of, "x": changed(of["x"])} for part, of in parts.items()}


def normalised(parts: Parts, scaling: Scaling) -> Parts:
    """Shift and scale all inputs alike, each channel or each; bytes as in [0, 1].

    Of inputs with the shape (n, channels, ...).
    """

    def scaled(x: NDArray[Any]) -> NDArray[np.float32]:
        top = 255 if x.dtype == np.uint8 else 1
        whole = np.size(scaling[0]) == x[0].size
        beside = x.shape[1:] if whole else (-1, *(1 for _ in x.shape[2:]))
        # In float64 where numbers are, such as seconds since 1970.
        kind = np.float64 if x.dtype == np.float64 else np.float32
        mean, deviation = (kind(top * np.asarray(e)).reshape(beside) for e in scaling)
        return ((x - mean) / deviation).astype(np.float32)

    mean, deviation = (np.asarray(each, np.float64) for each in scaling)
    return with_inputs(noted(parts, mean=mean, deviation=deviation), scaled)


def first_inputs(parts: Parts, periods: int) -> NDArray[Any]:
    """Return the training inputs whose mean and deviation are known at the start.

    Of several equal ``periods`` of the time of both parts, those of the first: a
    stream's later ones are not known yet.
    """
    x = parts["train"]["x"]
    if periods == 1:
        return x
    times = np.concatenate([parts[part]["time"] for part in PARTS])
    # In Python's integers, so that the end of a period is exact and has no bounds.
    start = int(times.min())
    end = int(times.max())
    return x[parts["train"]["time"] <= start + (end - start) // periods]


def filled(parts: Parts, name: str, periods: int) -> Parts:
    """Put an input's mean over `first_inputs` wherever it is no finite number.

    Raises `ConfigError` if none of these samples of the dataset ``name`` has the input.
    """
    train = first_inputs(parts, periods)
    if train.dtype.kind != "f":
        return parts
    known = np.isfinite(train)
    counts = known.sum(axis=0)
    if not counts.all():
        lacking = f"no training sample has input {int(np.argmin(counts))}, from 0"
        raise ConfigError(f"{name}: {lacking}, so there is no mean; leave it out")
    mean = np.sum(train, axis=0, where=known, dtype=np.float64) / counts
    parts = noted(parts, missing=mean)
    return with_inputs(parts, lambda x: np.where(np.isfinite(x), x, mean))


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


def standardised_by_training(parts: Parts, periods: int) -> Parts:
    """Shift and scale every input to mean 0 and deviation 1 of the training set.

    Its `first_inputs` count alone. A constant input is shifted, and not scaled.
    """
    x = first_inputs(parts, periods)
    mean, deviation = (f(axis=0, dtype=np.float64) for f in (x.mean, x.std))
    # The deviation of equal numbers is that of their mean's rounding.
    scale = np.where(deviation > ROUNDING * np.abs(mean), deviation, 1)
    parts = noted(parts, mean=mean, deviation=scale)
    # In float64, for inputs such as seconds since 1970.
    return with_inputs(parts, lambda x: ((x - mean) / scale).astype(np.float32))
