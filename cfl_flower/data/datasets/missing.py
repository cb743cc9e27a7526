"""Values that are missing: told, left out or filled."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfl_flower.data.reading.inferred import SHOWN
from cfl_flower.errors import ConfigError

NA_VALUES = (
    *("?", "-", "--", ".", "NA", "N/A", "na", "n/a", "#N/A", "#NA", "<NA>", "NaN"),
    *("nan", "NAN", "-nan", "NaT", "None", "NULL", "Null", "null", "\\N", "#NULL!"),
    *("#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!"),
)
"""Texts that databases, spreadsheets and libraries write for no value."""


Missing: TypeAlias = Literal["refuse", "drop", "mean"]
"""What is done about missing values."""


def choose_rows(
    absent: pd.DataFrame, means: Collection[str], missing: Missing, called: str
) -> tuple[NDArray[np.bool_], list[str]]:
    """Return which rows stay, and what to say about it, or raise `ConfigError`.

    ``absent`` marks what is missing of each column; its index has each row's file and
    place. The columns ``means`` have a mean; errors call the dataset ``called``.
    """
    lacking = absent.loc[:, absent.any()]
    meant = list(means) if missing == "mean" else []
    rest = lacking.drop(columns=meant, errors="ignore")
    lost = rest.any(axis=1).to_numpy(bool)
    told = f"{called} lacks values: {_counted(lacking)}"
    if lost.any() and (missing != "drop" or lost.all()):
        mean = " or mean for inputs in numbers" if missing == "refuse" else ""
        drop = f"set dataset.missing=drop to leave rows out{mean}"
        remedy = "leave columns out: no row has all" if lost.all() else drop
        why = f"{told}; fill them, or {remedy}"
        raise ConfigError(f"{why}; dataset.na_values says what is missing")
    done = f"rows left out: {lost.sum():,}" if lost.any() else "means fill them"
    return ~lost, [f"{told}; {done}"] if len(lacking.columns) else []


def _counted(absent: pd.DataFrame) -> str:
    """Return how many values each column lacks, and where the first is."""
    told = [
        f"{name} in {lacks.sum():,} of {len(absent):,} rows, first in {place(lacks)}"
        for name, lacks in absent.iloc[:, :SHOWN].items()
    ]
    more = len(absent.columns) - SHOWN
    return ", ".join([*told, f"{more} other columns"] if more > 0 else told)


def place(marked: pd.Series) -> str:
    """Return the file and the number, from 1, of the first row that is marked."""
    _, file, row = marked.index[int(np.argmax(marked.to_numpy(bool)))]
    return f"{file}: row {row + 1}"


def is_absent(column: pd.Series, signs: Collection[str]) -> NDArray[np.bool_]:
    """Return where a column has no finite value, or a text that stands for none."""
    texts = {"", *signs}
    numbers = pd.to_numeric(pd.Series([*signs], dtype=object), errors="coerce")
    if pd.api.types.is_numeric_dtype(column):
        absent = ~np.isfinite(column.to_numpy(np.float64, na_value=np.nan))
    else:
        told = (isinstance(cell, str) and cell.strip() in texts for cell in column)
        absent = column.isna().to_numpy(bool) | np.fromiter(told, bool, len(column))
        # -999 is also decimal.Decimal("-999.00"), and such a text.
        column = pd.to_numeric(column, errors="coerce")
        # Beside other texts, inf is one of them.
        if column[~absent].notna().all():
            absent |= column.isin([np.inf, -np.inf]).to_numpy(bool)
    return absent | column.isin(numbers.dropna()).to_numpy(bool)
