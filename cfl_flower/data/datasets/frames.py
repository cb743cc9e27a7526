"""A dataset of rows and columns, wherever they come from: a row for each sample."""

from __future__ import annotations

import json
from abc import abstractmethod
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfl_flower.data.datasets.columns import Column, encode, require_columns
from cfl_flower.data.datasets.missing import NA_VALUES, Missing, choose_rows, is_absent
from cfl_flower.data.datasets.times import moments
from cfl_flower.data.reading.doubts import codes
from cfl_flower.data.reading.inferred import InferredDataset
from cfl_flower.data.reading.pictures import Crop, images
from cfl_flower.data.reading.pool import PARTS, Parts
from cfl_flower.data.reading.scaling import Input, filled
from cfl_flower.errors import ConfigError, intact
from cfl_flower.settings import Count, require, settings

Frames: TypeAlias = list[tuple[str, str, pd.DataFrame]]
"""A part, a name for errors and a table; its rows are numbered from 0."""

ROW = "row"
"""The time of samples that have no other: the number of their row."""


@settings("dataset")
class TableDataset(InferredDataset):
    """A dataset in one or two tables, for training and testing."""

    missing: Missing = "refuse"
    """Treatment of missing values: refuse says where they are and ends, drop leaves
    their rows out, mean takes the training set's mean of an input in numbers; labels,
    owners, times and categories have none."""
    na_values: tuple[str, ...] | None = None
    """Texts that stand for a missing value, as an empty cell does; null for ?, -, NA,
    nan, None, null and their like. With [], a class may be called None."""
    label: Column = "label"
    """Column of the classes, by number or name."""
    features: tuple[Column, ...] = ()
    """Columns of the inputs; [] for all that no other setting names. A column of texts
    becomes one input for each text."""
    owner: Column | None = None
    """Column that says whose a sample is, for `partition=natural`."""
    time: Column | None = None
    """Column with integers or dates, for `drift=timestamps`; row, if no column is
    called so, for the place of a sample in its table."""
    time_format: str | None = None
    """Format of dates, by the letters of Python's strftime: `%d.%m.%Y %H:%M`; null for
    2024-01-31, and integer for numbers that only look like dates."""
    periods: Count = 1
    """Number of equal parts of the time; `standardise=pooled` takes mean and deviation
    from the first, since later data are not known yet."""
    image: Column | None = None
    """Column of images, instead of features."""
    size: Count = 32
    """Height and width to which images are resized."""
    channels: Literal[1, 3] = 3
    """1 for grey, 3 for colour."""

    def __post_init__(self) -> None:
        super().__post_init__()
        columns = list(self.features)
        others = sorted({self.label, self.owner or "", self.time or ""} - {""})
        ok = len(set(columns)) == len(columns) and not set(columns) & set(others)
        allowed = f"columns without {', '.join(others)}, each once"
        require(ok, "dataset.features", columns, allowed)
        ok = self.periods == 1 or self.time is not None
        require(ok, "dataset.periods", self.periods, "1 without dataset.time")

    @property
    def signs(self) -> tuple[str, ...]:
        """Return what stands for a missing value, beside nothing."""
        return NA_VALUES if self.na_values is None else self.na_values

    @abstractmethod
    def frames(self, data_dir: str) -> Frames:
        """Return tables for training and perhaps testing, or raise `ConfigError`."""

    def read(self, data_dir: str) -> Parts:
        """Read the tables."""
        frames = self.frames(data_dir)
        table = self.stacked(frames)
        places = table.groupby(level=0).cumcount().to_numpy()
        keep, notes = self._known(table)
        table = table[keep]
        sizes = {part: sum(table.index.get_level_values(0) == part) for part in PARTS}
        there = dict.fromkeys(part for part, _, _ in frames)
        for part in there:
            if not sizes[part]:
                where = f"{self.called} for the {part} part"
                raise ConfigError(f"{where} has no row; add samples")
        x, inputs = self.inputs(table)
        notes += [f"{self.called}: {each}" for each in codes(table, x, inputs)]
        columns = {"x": x, "y": _plain(table[self.label]), "row": places[keep]}
        if self.owner:
            columns["owner"] = _plain(table[self.owner])
        if self.time:
            columns["time"] = moments(table[self.time], self.time_format)
        rows = {"train": slice(sizes["train"]), "test": slice(sizes["train"], None)}
        beside = {"notes": np.asarray(notes, str)}
        if inputs:
            beside["inputs"] = np.asarray(list(map(json.dumps, inputs)))
        own = {p: {k: c[rows[p]] for k, c in columns.items()} for p in there}
        return {part: {**arrays, **beside} for part, arrays in own.items()}

    def stacked(self, frames: Frames) -> pd.DataFrame:
        """Return the columns that are used, of all rows, those for training first.

        The index has a row's part, its table and its place there. Raises `ConfigError`
        if a table lacks a column.
        """
        train = [(where, frame) for part, where, frame in frames if part == "train"]
        first, frame = train[0]
        inputs = self.input_columns(frame)
        keys = self.keys()
        numbered = self.time == ROW and ROW not in frame
        if numbered:
            del keys[ROW]
        for _, where, frame in frames:
            require_columns(frame, keys, where)
        for where, frame in train:
            self._require_names(frame, where)
            if differ := sorted({*inputs} ^ {*self.input_columns(frame)}):
                why = f"do not both have the columns {', '.join(differ)}; write them"
                ours = f"{first} and {where} {why}"
                raise ConfigError(f"{ours} alike, or name others in dataset.features")
        kind = "image" if self.image else "features"
        for _, where, frame in frames:
            require_columns(frame, dict.fromkeys(inputs, kind), where)
        named = list(dict.fromkeys([*inputs, *keys]))
        chosen = [frame[named] for _, _, frame in frames]
        table = pd.concat(chosen, keys=[(part, where) for part, where, _ in frames])
        if numbered:
            table[ROW] = table.groupby(level=0).cumcount()
        return table

    def _known(self, table: pd.DataFrame) -> tuple[NDArray[np.bool_], list[str]]:
        """Return which rows lack nothing but numbers that have a mean, now NaN."""
        found = {name: is_absent(table[name], self.signs) for name in table}
        absent = pd.DataFrame(found, table.index)
        means = [] if self.image else self.input_columns(table)
        keep, notes = choose_rows(absent, means, self.missing, self.called)
        for name in absent.columns[absent.any()]:
            table[name] = table[name].mask(absent[name])
        return keep, notes

    def inputs(self, frame: pd.DataFrame) -> tuple[NDArray[Any], list[Input]]:
        """Return the inputs of a table's rows, (n, d), and what each is of a column."""
        if self.image:
            return self.images(frame[self.image]), []
        commas = getattr(self, "decimal", "") == "point"
        return encode(frame[self.input_columns(frame)], self.called, commas)

    def images(self, cells: pd.Series) -> NDArray[Any]:
        """Return the images that the column `image` names, shape (n, *shape)."""
        shape = (self.channels, self.size, self.size)
        return images(map(self.crop, cells), shape)

    def crop(self, cell: Any) -> Crop:
        """Return where the image is that a value of the column `image` stands for."""
        return Crop(Path(cell))

    def scaled(self, parts: Parts) -> Parts:
        """Return the parts with means for what they lack, shifted and scaled."""
        if self.missing == "mean" and self.standardise != "clients":
            parts = filled(parts, self.called, self.periods)
        return super().scaled(parts)

    def input_columns(self, frame: pd.DataFrame) -> list[str]:
        """Return the columns of the inputs."""
        if self.image:
            return [self.image]
        keys = self.keys()
        return list(self.features) or [
            key for key in frame.columns.tolist() if key not in keys
        ]

    def preprocessing(self, data_dir: str) -> dict[str, Any] | None:
        """Return what makes inputs of a row's values; None for inputs of other kinds.

        As plain data, for `preprocessing.json`.
        """
        inputs = self.unscaled(data_dir)
        if not all("column" in each for each in inputs):
            return None
        classes = list(self.names) or [*map(str, range(self.classes))]
        known = {"label": self.label, "classes": classes, "time": self.time}
        return {"format": 1, "inputs": inputs, **known}

    def keys(self) -> dict[str, str]:
        """Return the columns that are no inputs, and the settings that name them."""
        named = {self.label: "label", self.owner: "owner", self.time: "time"}
        return {name: key for name, key in named.items() if name}

    def _require_names(self, frame: pd.DataFrame, where: str) -> None:
        inputs = self.input_columns(frame)
        if not inputs:
            fault = f"{where} has no column but {', '.join(frame.columns)}"
            raise ConfigError(f"{fault}; add columns of inputs")
        for place, name in enumerate(frame, start=1):
            if name in inputs and name.startswith("Unnamed: "):
                said = f"{where} has no name for column {place}, perhaps an index"
                remedy = "write it into the header, or name others in dataset.features"
                raise ConfigError(f"{said}; {remedy}")


def _plain(column: pd.Series) -> NDArray[Any]:
    """Return numbers as they are and anything else as text."""
    if pd.api.types.is_numeric_dtype(column):
        return column.to_numpy()
    with intact(f"column {column.name}", "write its texts in UTF-8"):
        cells = [c.decode() if isinstance(c, bytes) else str(c) for c in column]
    return np.asarray(cells, str)
