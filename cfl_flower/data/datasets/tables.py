"""Datasets in tables of one's own: a row for each sample."""

from __future__ import annotations

import json
import warnings
from abc import abstractmethod
from collections.abc import Collection
from os.path import isfile
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfl_flower.data.datasets.columns import (
    Column,
    column_names,
    encode,
    refuse,
    require_columns,
)
from cfl_flower.data.datasets.missing import (
    NA_VALUES,
    Missing,
    choose_rows,
    is_absent,
)
from cfl_flower.data.datasets.times import moments
from cfl_flower.data.reading.doubts import codes
from cfl_flower.data.reading.files import find, inside
from cfl_flower.data.reading.inferred import OWN_FILE, InferredDataset
from cfl_flower.data.reading.pictures import Crop, images
from cfl_flower.data.reading.pool import PARTS, Parts
from cfl_flower.data.reading.scaling import Input, filled
from cfl_flower.errors import ConfigError, intact
from cfl_flower.settings import Count, require, require_package, settings

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


@settings("dataset")
class FileTable(TableDataset):
    """A dataset in one file, or a pattern of files, for each part."""

    file: str = "data.csv"
    """Absolute, or below data_dir; `parts/*.csv` reads several as one."""
    test_file: str | None = None
    """The test set; null holds `test_fraction` out."""
    folder: str = ""
    """Folder of the images that `image` names, below that of the file."""
    standardise: Literal["clients", "pooled", False] = "clients"
    remedy: ClassVar[str] = OWN_FILE
    advice: ClassVar[str] = "fix it, or save it again, or as a .csv for dataset=csv"
    """Remedy for a file that is no such table."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(bool(self.file), "dataset.file", "''", "the name of a file")

    def files(self) -> tuple[str, ...]:
        """Return the file or files."""
        return (self.file, *([self.test_file] if self.test_file else []))

    @property
    def called(self) -> str:
        """What errors call it."""
        return f"{self.name} {self.file}"

    def version(self, data_dir: str) -> str:
        """Return what changes when a file does, or an image that one lists."""
        frames = self.frames(data_dir) if self.image else []
        cells = {str(cell) for _, _, of in frames for cell in of.get(self.image, ())}
        times = {c: Path(c).stat().st_mtime for c in filter(isfile, sorted(cells))}
        return super().version(data_dir) + repr(times)

    @abstractmethod
    def frame(self, path: Path, texts: Collection[str] = ()) -> pd.DataFrame:
        """Read one file; cells of the columns ``texts`` are texts as they stand."""

    def frames(self, data_dir: str) -> Frames:
        """Read the files of each part."""
        return [
            (part, str(path).removeprefix(f"{data_dir}/"), self._read(path))
            for part, pattern in zip(PARTS, self.files(), strict=False)
            for path in find(data_dir, pattern)
        ]

    def images(self, cells: pd.Series) -> NDArray[Any]:
        """Return the images that the column `image` names, shape (n, *shape)."""
        refuse(cells, ~cells.map(isfile), "is no file; correct it or dataset.folder")
        return super().images(cells)

    def _read(self, path: Path) -> pd.DataFrame:
        with intact(path, self.advice):
            frame = self.frame(path).reset_index(drop=True)
            frame.columns = pd.Index(column_names(frame.columns))
            if self.image in frame:
                # On a device, others write the settings.
                folder = inside(path.parent, self.folder)
                named = ~is_absent(frame[self.image], self.signs)
                cells = frame[self.image].astype(object)
                cells[named] = [
                    str(inside(folder, name)) for name in cells[named].astype(str)
                ]
                frame[self.image] = cells
            return frame


WORDS = {"tab": "\t", "semicolon": ";", "comma": ",", "point": "."}
"""Characters that Hydra or the shell would want in quotes."""


@settings("dataset")
class Csv(FileTable):
    """A dataset in .csv files whose first line has the names of the columns."""

    separator: str = ","
    """Separator of values; also the words tab and semicolon, which need no quotes."""
    decimal: Literal["point", "comma"] = "point"
    """Mark before the decimals of a number."""
    encoding: str = "utf-8"
    """Encoding of the characters, by Python's name."""
    header: bool = True
    """Whether the first line has the names of the columns; they are 0, 1, … if not."""
    name: ClassVar[str] = "the .csv file"
    advice: ClassVar[str] = (
        "fix it, save it again as UTF-8 text and with as many values in each row, or "
        "set dataset.encoding, dataset.separator or dataset.decimal"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = len(self.separator) == 1 or self.separator in (*WORDS, r"\s+")
        allowed = r"one character, tab, semicolon, or \s+ for any number of blanks"
        require(ok, "dataset.separator", repr(self.separator), allowed)

    def frame(self, path: Path, texts: Collection[str] = ()) -> pd.DataFrame:
        """Read one file, whose columns must have different names."""
        form: dict[str, Any] = {
            "filepath_or_buffer": path,
            "sep": WORDS.get(self.separator, self.separator),
            "encoding": self.encoding,
            "skipinitialspace": True,
            "keep_default_na": False,
        }
        line: dict[str, Any] = {"header": None, "nrows": 1, "dtype": str}
        first = pd.read_csv(**form, **line)
        names = list(map(str, first))
        if self.header:
            cells = enumerate(first.iloc[0])
            names = [cell.strip() or f"Unnamed: {place}" for place, cell in cells]
        names = column_names(names)
        form |= {
            "header": 0 if self.header else None,
            "decimal": WORDS[self.decimal],
            "dtype": dict.fromkeys([self.label, self.owner, self.time, *texts], str),
            # Missing values must not turn a column of numbers, or of true and false,
            # into texts.
            "na_values": dict.fromkeys(names, ("", *self.signs)),
            "low_memory": False,
            "index_col": False,
        }
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            found: pd.DataFrame = pd.read_csv(**form, names=names)
        if self.decimal == "comma":
            names_alone = {self.label, self.owner, self.image, *texts}
            inputs = [n for n in self.features or found if n not in names_alone]
            marked = found[inputs].select_dtypes(exclude="number").astype(str).stack()
            marked = marked.astype(str)  # of no column at all they are floats
            marked = marked[marked.str.fullmatch(r"[-+]?\d{1,3}(\.\d{3})+(,\d+)?")]
            if len(marked):
                row, column = marked.index[0]
                mark = "a mark between thousands, or a point instead of a comma"
                cell = f"row {row + 1} has {column}={marked.iloc[0]}"
                raise ValueError(f"{cell}, which has {mark}")
            # Beside texts, numbers are texts.
            found = found.replace({r"^([-+]?\d*),(\d+)$": r"\1.\2"}, regex=True)
        return found


@settings("dataset")
class Parquet(FileTable):
    """A dataset in .parquet files."""

    file: str = "data.parquet"
    """Absolute, or below data_dir; `parts/*.parquet` reads several as one."""
    name: ClassVar[str] = "the .parquet file"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_package("pyarrow", "dataset", "parquet")

    def frame(self, path: Path, texts: Collection[str] = ()) -> pd.DataFrame:
        """Read one file, whose cells have types."""
        from pyarrow.parquet import read_table  # noqa: PLC0415

        # As floats, integers of a column with gaps would lose digits, as ids have.
        frame: pd.DataFrame = read_table(path).to_pandas(integer_object_nulls=True)
        # pandas may have written columns as the rows' names, or copies of columns.
        named = [n for n in frame.index.names if n not in (None, "", *frame)]
        return frame.reset_index(named)
