"""Values that are missing: told, left out or filled."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfl_flower.data.reading.inferred import SHOWN, InferredDataset
from cfl_flower.data.reading.pool import Parts
from cfl_flower.data.reading.scaling import filled
from cfl_flower.errors import ConfigError
from cfl_flower.settings import settings

NA_VALUES = (
    *("?", "-", "--", ".", "NA", "N/A", "na", "n/a", "#N/A", "#NA", "<NA>", "NaN"),
    *("nan", "NAN", "-nan", "NaT", "None", "NULL", "Null", "null", "\\N", "#NULL!"),
    *("#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!"),
)
"""What databases, spreadsheets and libraries write for no value."""


@settings("dataset")
class IncompleteDataset(InferredDataset):
    """A dataset of one's own of which some samples may lack a value."""

    missing: Literal["refuse", "drop", "mean"] = "refuse"
    """What is done about missing values: refuse says where they are and ends, drop
    leaves their rows out, mean takes the training set's mean of an input in numbers;
    labels, owners, times and categories have none."""
    na_values: tuple[str, ...] | None = None
    """What stands for a missing value, as an empty cell does; null for ?, -, NA, nan,
    None, null and their like. With [], a class may be called None."""

    @property
    def signs(self) -> tuple[str, ...]:
        """Return what stands for a missing value, beside nothing."""
        return NA_VALUES if self.na_values is None else self.na_values

    def divided(self, parts: Parts) -> Parts:
        """Return the samples of both parts, with means for what they lack."""
        parts = super().divided(parts)
        return filled(parts, self.called) if self.missing == "mean" else parts

    def kept(
        self, absent: pd.DataFrame, means: Collection[str]
    ) -> tuple[NDArray[np.bool_], list[str]]:
        """Return which rows stay, and what to say about it, or raise `ConfigError`.

        ``absent`` marks what is missing of each column; its index has each row's file
        and place. The columns ``means`` have a mean.
        """
        lacking = absent.loc[:, absent.any()]
        meant = list(means) if self.missing == "mean" else []
        rest = lacking.drop(columns=meant, errors="ignore")
        lost = rest.any(axis=1).to_numpy(bool)
        told = f"{self.called} lacks values: {_counted(lacking)}"
        if lost.any() and (self.missing != "drop" or lost.all()):
            mean = " or mean for inputs in numbers" if self.missing == "refuse" else ""
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
    file, row = marked.index[int(np.argmax(marked.to_numpy(bool)))]
    return f"{file}: row {row + 1}"


def is_absent(column: pd.Series, signs: Collection[str]) -> NDArray[np.bool_]:
    """Return where a column has no finite value, or a text that stands for none."""
    texts = {"", *signs}
    if pd.api.types.is_numeric_dtype(column):
        known = np.isfinite(column.to_numpy(np.float64, na_value=np.nan))
        numbers = pd.to_numeric(pd.Series([*signs]), errors="coerce")
        known &= ~column.isin(numbers).to_numpy(bool)
    else:
        told = (isinstance(cell, str) and cell.strip() in texts for cell in column)
        known = column.notna().to_numpy(bool) & ~np.fromiter(told, bool, len(column))
    found: NDArray[np.bool_] = ~known
    return found
