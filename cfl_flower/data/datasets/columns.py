"""From the columns of a table to inputs, labels, owners and times."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from numbers import Number

import numpy as np
import pandas as pd

from cfl_flower.data.reading.files import intact
from cfl_flower.errors import ConfigError
from cfl_flower.settings import known_names
from cfl_flower.types import FloatArray, IntArray

CATEGORIES_AT_MOST = 100

FEW = 10
"""A column of texts with more different ones than the first number is no category, nor
one with more than the second that are more than half of its rows."""


def require_whole(frame: pd.DataFrame, keys: Mapping[str, str], where: object) -> None:
    """Require columns, with a value in each row, or raise `ConfigError`."""
    for name, key in keys.items():
        if name not in frame:
            raise ConfigError(
                f"dataset.{key}={name} is no column of {where}; "
                f"{known_names(name, list(map(str, frame.columns)))}"
            )
    for name in keys:
        values = frame[name]
        empty = values.isna()
        if not pd.api.types.is_numeric_dtype(values):
            empty |= values.astype(str).str.strip() == ""
        if empty.any():
            raise ConfigError(
                f"{where}: row {int(np.argmax(empty)) + 1} has no {name}; fill it or "
                "leave the row out"
            )


def encode(frame: pd.DataFrame, where: object) -> FloatArray:
    """Return inputs, float64 (n, d): numbers as they are, texts one of k.

    A column of k distinct texts becomes k inputs, in the order of the alphabet.

    Raises
    ------
    ConfigError
        If a column mixes numbers and texts, or has too many different texts.

    Examples
    --------
    >>> frame = pd.DataFrame({"age": ["3", "4.5"], "kind": ["cat", "ant"]})
    >>> encode(frame, "pets.csv")
    array([[3. , 0. , 1. ],
           [4.5, 1. , 0. ]])
    """
    found = [_encoded(frame[name], where) for name in frame]
    return np.concatenate(found, axis=1)


def _encoded(column: pd.Series, where: object) -> FloatArray:
    kind = type(column.iloc[0])
    if not issubclass(kind, Number | np.generic | str | date):
        raise ConfigError(
            f"{where}: column {column.name} holds values of type {kind.__name__}; name "
            "columns of numbers and texts by dataset.features"
        )
    with intact(f"column {column.name} of {where}"):
        numbers = pd.to_numeric(column, errors="coerce").to_numpy(np.float64)
    known = np.abs(numbers) <= np.finfo(np.float32).max
    if known.all():
        return numbers[:, None]
    if known.any():
        row = int(np.argmin(known))
        raise ConfigError(
            f"{where}: row {row + 1} has {column.name}={column.iloc[row]}, which is no "
            "finite number (float32) as in other rows; fix it or leave the row out"
        )
    texts, places = np.unique(column.to_numpy(str), return_inverse=True)
    if len(texts) > min(CATEGORIES_AT_MOST, max(FEW, len(column) / 2)):
        raise ConfigError(
            f"{where}: column {column.name} has {len(texts)} different texts; name a "
            "column of dates by dataset.time, of users by dataset.owner, of sentences "
            "by dataset.text, or the inputs by dataset.features"
        )
    return np.eye(len(texts))[places]


def word_frequencies(texts: pd.Series, size: int) -> FloatArray:
    """Return the frequencies of words, hashed to ``size`` places, float32 (n, size).

    Of length 1 in L2. No vocabulary is learnt, so that every device has the same.
    """
    # sklearn takes a while to import.
    from sklearn.feature_extraction.text import HashingVectorizer  # noqa: PLC0415

    words = HashingVectorizer(n_features=size, alternate_sign=False, dtype=np.float32)
    found: FloatArray = words.transform(texts.astype(str)).toarray()
    return found


def seconds(times: pd.Series, where: object) -> IntArray:
    """Return integers, or dates in seconds since 1970, or raise `ConfigError`."""
    numbers = pd.to_numeric(times, errors="coerce").to_numpy(np.float64)
    dates = pd.api.types.is_datetime64_any_dtype(times) or np.isnan(numbers).all()
    remedy = "write integers or dates such as 2024-01-31, all of one kind"
    with intact(f"column {times.name} of {where}", remedy):
        if dates:
            found = pd.to_datetime(times, utc=True, format="ISO8601")
            return found.to_numpy("datetime64[s]").astype(np.int64)
        if not np.array_equal(numbers, np.rint(numbers)):
            raise ValueError("it has other values than integers")
        return numbers.astype(np.int64)
