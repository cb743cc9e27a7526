"""From the columns of a table to inputs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import date
from numbers import Number
from typing import Annotated, TypeAlias
from unicodedata import normalize

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import AfterValidator

from cfl_flower.data.datasets.missing import place
from cfl_flower.data.reading.names import numbered_names
from cfl_flower.data.reading.scaling import Input
from cfl_flower.errors import ConfigError, intact
from cfl_flower.settings import known_names
from cfl_flower.types import FloatArray

CATEGORIES_AT_MOST = 100

FEW = 10
"""A column of texts with more different ones than the first number is no category, nor
one with more than the second that are more than half of its rows."""

FORMATTED = re.compile(
    # A sign or a currency; thousands or digits; decimals; what it is a number of.
    r"[-+−<>~≈]?\s*[$€£¥]?\s*[-+−]?\s*(?=[.,]?\d)(\d{1,3}([.,'’\s]\d{3})+|\d*)([.,]\d+)?"
    r"(e[-+]?\d+)?\s*(?P<unit>[^\d\s][^\d]{0,9}[²³]?)?",
    re.IGNORECASE,
)
"""A number as people write it, which is none for a computer."""


def column_name(found: object) -> str:
    """Return the name of a column as text, however its accents are written."""
    return normalize("NFC", str(found)).strip()


Column: TypeAlias = Annotated[str, AfterValidator(column_name)]
"""The name of a column in a setting."""


def column_names(found: Iterable[object]) -> list[str]:
    """Return the names of columns as text, or raise `ValueError` if two are the same.

    Examples
    --------
    >>> column_names(["age ", 2])
    ['age', '2']
    """
    names = list(map(column_name, found))
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"several columns are called {', '.join(twice)}")
    return names


def require_columns(
    frame: pd.DataFrame, keys: Mapping[str, str], where: object
) -> None:
    """Require columns, which settings name, or raise `ConfigError`."""
    for name, key in keys.items():
        if name not in frame:
            fault = f"dataset.{key}={name} is no column of {where}"
            raise ConfigError(f"{fault}; {known_names(name, list(frame.columns))}")


def encode(
    frame: pd.DataFrame, where: object, commas: bool = False
) -> tuple[FloatArray, list[Input]]:
    """Return inputs, float64 (n, d), and what each is: numbers as such, texts one of k.

    A column of k distinct texts becomes k inputs, in the order of the alphabet. The
    index of the rows has their tables and places; a number may be missing, as NaN.
    ``commas`` says whether decimal commas may still be set.

    Raises
    ------
    ConfigError
        If a column mixes numbers and texts, has numbers that only people read as such,
        or has too many different texts.

    Examples
    --------
    >>> frame = pd.DataFrame({"age": ["3", "4.5"], "kind": ["cat", "ant"]})
    >>> frame = pd.concat([frame], keys=[("train", "pets.csv")])
    >>> x, inputs = encode(frame, "pets.csv")
    >>> x
    array([[3. , 0. , 1. ],
           [4.5, 1. , 0. ]])
    >>> inputs
    [{'column': 'age'}, {'column': 'kind', 'category': 'ant'}, \
{'column': 'kind', 'category': 'cat'}]
    """
    found = [_encoded(frame[name], where, commas) for name in frame]
    inputs = [each for _, own in found for each in own]
    return np.concatenate([x for x, _ in found], axis=1), inputs


def _encoded(
    column: pd.Series, where: object, commas: bool
) -> tuple[FloatArray, list[Input]]:
    given = column.dropna()
    kind = type(given.iloc[0]) if len(given) else float
    if not issubclass(kind, Number | np.generic | str | date):
        raise ConfigError(
            f"{where}: column {column.name} holds values of type {kind.__name__}; name "
            "columns of numbers and texts by dataset.features"
        )
    with intact(f"column {column.name} of {where}"):
        numbers = numbers_of(column)
    known = np.abs(numbers) <= np.finfo(np.float32).max
    wrong = column.notna() & ~known
    if not wrong.any():
        return numbers[:, None], [Input(column=str(column.name))]
    if np.isfinite(numbers[column.notna()]).all():
        refuse(column, wrong, "is too large for float32; scale the column")
    if known.any():
        refuse(column, wrong, _beside_numbers(column.notna(), known))
    why = "is a category without a mean; set dataset.missing=drop"
    refuse(column, column.isna(), why)
    what = f"{where}: in column {column.name},"
    texts, (places,) = numbered_names([column.to_numpy(object).astype(str)], what)
    # Accountants write (5) or 5- for -5, and Excel ="5".
    plain = [text.casefold().strip(' ()="').rstrip("-− ") for text in texts]
    forms = [FORMATTED.fullmatch(text) for text in plain]
    # One year, two years.
    units = {(form["unit"] or "").rstrip("s") for form in forms if form}
    if len(units) == 1 and all(forms):
        told = f"{where}: column {column.name} has numbers such as {texts[0]}"
        remedy = ", or set dataset.decimal=comma" if commas and "," in texts[0] else ""
        raise ConfigError(f"{told}; write them as 1234.5, without a unit{remedy}")
    if len(texts) > min(CATEGORIES_AT_MOST, max(FEW, len(column) / 2)):
        raise ConfigError(
            f"{where}: column {column.name} has {len(texts)} different texts; name a "
            "column of dates by dataset.time, of users by dataset.owner, or the inputs "
            "by dataset.features"
        )
    name = str(column.name)
    inputs = [Input(column=name, category=text) for text in texts.tolist()]
    return np.eye(len(texts))[places], inputs


def _beside_numbers(there: pd.Series, known: NDArray[np.bool_]) -> str:
    """Return what is wrong with texts beside numbers, by where each of both is."""
    files = there.index.get_level_values(1)
    of_numbers = dict.fromkeys(files[known])
    if not set(of_numbers) & set(files[there & ~known]):
        return (
            f"is no number (float32), but {next(iter(of_numbers))} has numbers alone "
            "(true and false are some); write the column alike in all files"
        )
    return (
        "is no finite number (float32) as in other rows; fix it, leave it out, or name "
        "it in dataset.na_values if it stands for a missing value; if these are codes, "
        "write a letter before each"
    )


def numbers_of(column: pd.Series) -> FloatArray:
    """Return a column's numbers, float64 (n,): NaN for what is missing or is none.

    Dates are seconds since 1970, whatever unit and zone a file has them in.
    """
    if pd.api.types.is_timedelta64_dtype(column):
        return np.full(len(column), np.nan)
    objects = column.dtype == object and [isinstance(e, date) for e in column.dropna()]
    if pd.api.types.is_datetime64_any_dtype(column) or (objects and all(objects)):
        times = pd.to_datetime(column, utc=True).dt.tz_localize(None)
        dates = times.to_numpy("datetime64[us]")
        return np.where(np.isnat(dates), np.nan, dates.astype(np.int64) / 1e6)
    return pd.to_numeric(column, errors="coerce").to_numpy(np.float64, na_value=np.nan)


def refuse(column: pd.Series, wrong: pd.Series, why: str) -> None:
    """Raise `ConfigError` for the first value that is wrong, if any is."""
    if wrong.any():
        first = column.iloc[int(np.argmax(wrong))]
        raise ConfigError(f"{place(wrong)} has {column.name}={first}, which {why}")
