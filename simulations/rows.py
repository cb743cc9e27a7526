"""Raw rows of a table as a served model takes them."""

from __future__ import annotations

from pathlib import Path
from unicodedata import normalize

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfl_flower.data.datasets.columns import column_names, numbers_of
from cfl_flower.data.datasets.missing import NA_VALUES, is_absent
from cfl_flower.data.datasets.tables import Csv, FileTable, Parquet
from cfl_flower.data.reading.inferred import SHOWN
from cfl_flower.data.reading.names import spelling
from cfl_flower.data.reading.scaling import Input
from cfl_flower.errors import ConfigError, intact, one_line, printable
from cfl_flower.settings import known_names, require
from cfl_flower.types import FloatArray, IntArray, Json, Vector

TABLES: dict[str, type[FileTable]] = {".csv": Csv, ".parquet": Parquet}
"""The reader of a file, by how its name ends."""


def read_rows(card: dict[str, Json], path: Path) -> pd.DataFrame:
    """Return a file's rows, read as the table was that the model was trained on.

    Raises `ConfigError` for another file, and for a model of no table.
    """
    require(path.is_file(), "FILE", path, "a file that is there")
    suffix = path.suffix.lower()
    ends = f"a file that ends in {' or '.join(TABLES)}"
    require(suffix in TABLES, "FILE", path, ends)
    shape = tuple(card["shape"])
    allowed = f"samples of shape {shape} in a program: the model is of no table"
    require(bool(card["inputs"]), "FILE", path, allowed)
    kind = TABLES[suffix]
    told = card["reading"].items()
    reading = {key: value for key, value in told if hasattr(kind, key)}
    table: FileTable = kind(file=str(path), label=card["label"], **reading)
    texts = {each["column"] for each in card["inputs"] if "category" in each}
    with intact(path, table.advice):
        frame = table.frame(path, texts).reset_index(drop=True)
        frame.columns = pd.Index(column_names(frame.columns))
    require(len(frame) > 0, "FILE", path, "a file with rows")
    # Every column of it says where it is from.
    frame.index.name = one_line(path.name)
    return frame


def to_inputs(card: dict[str, Json], frame: pd.DataFrame) -> tuple[Vector, list[str]]:
    """Return inputs, float32 (n, d), and notes on texts that nobody trained on.

    Raises `ConfigError` for a column or a value that lacks, or is no number.
    """
    inputs: list[Input] = card["inputs"]
    places: dict[str, list[int]] = {}
    for number, each in enumerate(inputs):
        places.setdefault(each["column"], []).append(number)
    notes = []
    told = card["reading"].get("na_values")
    signs = NA_VALUES if told is None else told
    x = np.empty((len(frame), len(inputs)))
    for name, own in places.items():
        column = _column(frame, name)
        absent = is_absent(column, signs)
        x[:, own] = _read_column(column, absent, [inputs[each] for each in own])
        if absent.all():
            filled = "the mean of the training fills it"
            notes.append(f"no row has a value of {name}; {filled}")
    wrong = ~(np.abs(x) <= np.finfo(np.float32).max)
    for place in np.flatnonzero(wrong.any(axis=0)):
        column = frame[inputs[place]["column"]]
        why = "lacks, or is no finite number (float32); fix it"
        _refuse(column, wrong[:, place], why)
    for name, own in places.items():
        lost = ~x[:, own].any(axis=1)
        if "category" in inputs[own[0]] and lost.any():
            rows = f"{lost.sum():,} of {len(x):,} rows have a {name}"
            first = frame[name].iloc[int(np.argmax(lost))]
            notes.append(f"{rows} that nobody trained on, such as {first}")
    mean = [each.get("mean", 0.0) for each in inputs]
    deviation = [each.get("deviation", 1.0) for each in inputs]
    return ((x - mean) / deviation).astype(np.float32), notes


def _read_column(
    column: pd.Series, absent: NDArray[np.bool_], inputs: list[Input]
) -> FloatArray:
    """Return a column's inputs before they are scaled, (n, k).

    NaN stands for what lacks, if nothing fills it, or is no number.
    """
    if "category" in inputs[0]:
        number = {each["category"]: place for place, each in enumerate(inputs)}
        found = [number.get(normalize("NFC", str(cell)), -1) for cell in column]
        values = np.equal.outer(found, range(len(inputs))).astype(float)
    else:
        values = np.repeat(numbers_of(column)[:, None], len(inputs), axis=1)
    values[absent] = [each.get("missing", np.nan) for each in inputs]
    return values


def to_labels(card: dict[str, Json], frame: pd.DataFrame) -> IntArray:
    """Return the labels of rows, (n,), or raise `ConfigError`."""
    column = _column(frame, card["label"])
    known = [spelling(name) for name in card["classes"]]
    own = [spelling(str(cell)) for cell in column]
    wrong = np.asarray([name not in known for name in own], bool)
    _refuse(column, wrong, f"is none of {', '.join(known[:SHOWN])}; correct it")
    return np.asarray([known.index(name) for name in own], np.int64)


def _column(frame: pd.DataFrame, name: str) -> pd.Series:
    if name not in frame:
        hint = known_names(name, list(frame.columns))
        lacks = f"{frame.index.name} lacks the column {one_line(name)}"
        raise ConfigError(f"{lacks}; {hint}")
    return frame[name]


def _refuse(column: pd.Series, wrong: NDArray[np.bool_], why: str) -> None:
    """Raise `ConfigError` for the first value that is wrong, if any is."""
    if wrong.any():
        row = int(np.argmax(wrong))
        told = f"row {row + 1} has {column.name}={column.iloc[row]}"
        raise ConfigError(f"{column.index.name}: {printable(told)}, which {why}")
