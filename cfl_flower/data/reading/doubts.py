"""What samples hold that is probably not meant, a line each."""

from __future__ import annotations

from itertools import zip_longest

import numpy as np

from cfl_flower.data.reading.pool import Parts
from cfl_flower.data.reading.scaling import described

FAR = 50
"""A number this many times as far from the median as three quarters of its input's sets
the scale by itself: a missing value written as -9999, or a slip of the keyboard."""

FEWEST = 10
"""Samples of a class, on average, from which on it is no chance that a column has one
value for each class."""

SHOWN = 5
"""Inputs of which a line says so."""


def far_off(parts: Parts) -> list[str]:
    """Return what training inputs set the scale by themselves.

    Inputs with the same number in three quarters of the samples have none to compare,
    and bytes have bounds.
    """
    x = parts["train"]["x"]
    if x.dtype.kind != "f":
        return []
    columns = x.reshape(len(x), -1).T
    found = []
    for place, (column, known) in enumerate(zip_longest(columns, described(parts))):
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
    more = len(found) - SHOWN
    if more > 0:
        found[SHOWN:] = [f"{more} other inputs have such numbers"]
    return found


def no_inputs(parts: Parts) -> list[str]:
    """Return the columns that give the label away, or count the rows."""
    train = parts["train"]
    y = train["y"]
    classes = len(np.unique(y))
    places: dict[str, list[int]] = {}
    for place, each in enumerate(described(parts)):
        places.setdefault(each["column"], []).append(place)
    found = []
    for name, own in places.items():
        values = train["x"][:, own]
        kinds, kind = np.unique(values, axis=0, return_inverse=True)
        pairs = np.unique(np.column_stack([kind.reshape(-1), y]), axis=0)
        remedy = "name the inputs by dataset.features if it is no input"
        if len(kinds) == len(pairs) == classes and len(y) >= FEWEST * classes > FEWEST:
            found.append(f"column {name} has one value for each class; {remedy}")
        elif len(own) == 1 and np.ptp(values[:, 0] - train["row"]) == 0 < len(y) - 1:
            found.append(f"column {name} counts the rows; {remedy}")
    return found


def seen_before(parts: Parts) -> list[str]:
    """Return a line if all samples for testing are samples for training, too."""
    known = {sample.tobytes() for sample in parts["train"]["x"]}
    if not all(sample.tobytes() in known for sample in parts["test"]["x"]):
        return []
    remedy = "accuracies say nothing of new samples; take others for testing"
    return [f"all samples of the test set are in the training set, too: {remedy}"]
