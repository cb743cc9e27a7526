"""What samples hold that is probably not meant, a line each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby, zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfl_flower.data.reading.pool import Arrays
from cfl_flower.data.reading.scaling import Input

FAR = 50
"""A number this many times as far from the median as three quarters of its input's sets
the scale by itself: a missing value written as -9999, or a slip of the keyboard."""

FEWEST = 10
"""Samples of each class from which on it is no chance that a column has one value for
each class; and of all, for one that counts the rows."""

DISTINCT = 0.9
"""Share of the training samples that differ, from which on a test sample that is one of
them is no chance."""

SHOWN = 5
"""Inputs of which a line says so."""

MOMENT = re.compile(
    r"(\d{4}([-/.])\d\d?\2\d\d?|\d\d?([-/.])\d\d?\3(\d{4}|\d\d))(?![.\d])"
    r"|\d\d?:\d\d(:\d\d)?( ?[ap]m)?$",
    re.IGNORECASE,
)
"""How a date begins, or a time of day."""

MANY = 1000
"""Samples of which one tells the scale."""


def far_off(x: NDArray[Any], inputs: Sequence[Input]) -> list[str]:
    """Return what inputs set the scale by themselves, of the samples that set it.

    Inputs with the same number in three quarters of the samples have none to compare,
    and bytes have bounds.
    """
    if x.dtype.kind != "f":
        return []
    columns = x.reshape(len(x), -1).T
    found = []
    for place, (column, known) in enumerate(zip_longest(columns, inputs)):
        values = column[np.isfinite(column)].astype(np.float64)
        distances = np.abs(values - np.median(values)) if values.size else np.zeros(1)
        usual = np.quantile(distances, 0.75, method="lower")
        if distances.max() > FAR * usual > 0:
            value = values[distances.argmax()]
            name = known["column"] if known else place
            found.append(
                f"input {name} has {value:g} in {(values == value).sum()} of "
                f"{values.size} samples, {distances.max() / usual:.3g} times as far "
                "from the median as three quarters of them, and it sets the scale; "
                "correct it, or mark it as missing if it stands for nothing"
            )
    if len(found) > SHOWN:
        found[SHOWN:] = [f"{len(found) - SHOWN} other inputs have such numbers"]
    return found


def no_inputs(train: Arrays, inputs: Sequence[Input]) -> list[str]:
    """Return the columns that give the label away, or count the rows."""
    found = []
    for name, places in groupby(range(len(inputs)), lambda n: inputs[n]["column"]):
        values = train["x"][:, [*places]]
        single = values.shape[1] == 1
        value = values[:, 0] if single else values.argmax(axis=1)
        known = np.isfinite(value)
        kinds = np.unique(value[known])
        labels, counts = np.unique(train["y"][known], return_counts=True)
        if len(labels) > 1 and len(kinds) == len(labels) and counts.min() >= FEWEST:
            pairs = np.column_stack([value, train["y"]])[known]
            if len(np.unique(pairs, axis=0)) == len(kinds):
                found.append(f"{name} has one value for each class")
        counted = single and np.ptp(value - train["row"]) == 0
        if counted and len(value) >= FEWEST:
            found.append(f"{name} counts the rows")
    remedy = "name others in dataset.features if it is no input"
    return [f"column {each}; {remedy}" for each in found]


def other_scale(train: NDArray[Any], test: NDArray[Any]) -> list[str]:
    """Return a line if an array's numbers in one part are far above the other's.

    That is, the largest twentieth, of some samples at equal distances.
    """
    some = [x[:: 1 + len(x) // MANY].astype(np.float64) for x in (train, test)]
    known = [np.append(np.abs(x[np.isfinite(x)]), 0) for x in some]
    sizes = [float(np.quantile(x, 0.95)) for x in known]
    if not 0 < FAR * min(sizes) < max(sizes):
        return []
    told = "a twentieth of inputs is above {:g} in training and {:g} in test samples"
    return [f"{told.format(*sizes)}: are they of one scale?"]


def codes(frame: Any, x: NDArray[Any], inputs: Sequence[Input]) -> list[str]:
    """Return a line for the columns of texts that were read as whole numbers.

    ``frame`` is the table. A csv has no types, so the line is for typed tables. A
    larger code is not more of anything.
    """
    found = []
    # Images have no columns.
    for known, values in zip(inputs, x.T, strict=False):
        if "category" in known:
            continue
        first = frame[known["column"]].dropna().head(1)
        numbers = values[np.isfinite(values)]
        whole = np.array_equal(numbers, np.rint(numbers))
        if whole and [isinstance(each, str) for each in first] == [True]:
            found.append(known["column"])
    if not found:
        return []
    more = ", …" if len(found) > SHOWN else ""
    return [
        f"column {', '.join(found[:SHOWN])}{more}: texts that are numbers are read as "
        "such; if these are codes, write a letter before each"
    ]


def dates(inputs: Sequence[Input]) -> list[str]:
    """Return a line for each column of dates or times that was read as categories."""
    found = []
    for name, of in groupby(inputs, lambda each: each["column"]):
        texts = [each["category"] for each in of if each.get("category")]
        if texts and all(map(MOMENT.match, texts)):
            found.append(
                f"column {name}: its {len(texts)} dates or times are categories, an "
                "input each; name it in dataset.time, or others in dataset.features"
            )
    return found


def seen_before(train: NDArray[Any], test: NDArray[Any]) -> list[str]:
    """Return a line if all samples for testing are samples for training, too.

    Where many of these are the same, as with few columns of categories, that is usual.
    """
    known = {hash(sample.tobytes()) for sample in train}
    seen = all(hash(sample.tobytes()) in known for sample in test)
    if not seen or len(known) < DISTINCT * len(train):
        return []
    remedy = "accuracies say nothing of new samples; take others for testing"
    return [f"all samples of the test set are in the training set, too: {remedy}"]
