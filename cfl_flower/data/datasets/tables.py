"""Datasets in tables of one's own: a row for each sample."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cfl_flower.data.datasets.columns import (
    encode,
    require_whole,
    seconds,
    word_frequencies,
)
from cfl_flower.data.reading.files import find, inside, intact
from cfl_flower.data.reading.inferred import OWN_FILE, InferredDataset
from cfl_flower.data.reading.pool import PARTS, Parts
from cfl_flower.data.reading.samples import Crop, images
from cfl_flower.data.reading.scaling import standardised_by_training
from cfl_flower.data.reading.texts import require_installed, token_numbers
from cfl_flower.errors import ConfigError
from cfl_flower.settings import Count, require, require_package, settings

ROW = "row"
"""The time of samples that have no other: the number of their row."""


@settings("dataset")
class TableDataset(InferredDataset):
    """A dataset in one or two tables, for training and testing."""

    label: str = "label"
    """Column of the classes, by number or name."""
    features: tuple[str, ...] = ()
    """Columns of the inputs; [] for all that no other setting names. A column of texts
    becomes one input for each text."""
    text: str | None = None
    """Column of texts to classify; their words' frequencies are the inputs then."""
    words: Count = 1024
    """Number of places to which the words of `text` are hashed."""
    tokenizer: str | None = None
    """Whose tokens of `text` are the inputs instead, as `source` of model=transformer
    says it."""
    tokens: Count = 64
    """Tokens of a text that count."""
    owner: str | None = None
    """Column that says whose a sample is, for `partition=natural`."""
    time: str | None = None
    """Column with integers or dates, for `drift=timestamps`; row, if no column is
    called so, for the place of a sample in its table."""
    periods: Count = 1
    """Of this many equal parts of the time, `standardise` takes mean and deviation from
    the first: what comes later is not known yet."""
    image: str | None = None
    """Column of images, instead of features."""
    size: Count = 32
    """Height and width to which images are resized."""
    channels: Literal[1, 3] = 3
    """1 for grey, 3 for colour."""

    def __post_init__(self) -> None:
        super().__post_init__()
        ok = not (self.text and self.features)
        require(ok, "dataset.features", list(self.features), "[] with dataset.text")
        columns = [self.text] if self.text else list(self.features)
        others = sorted({self.label, self.owner or "", self.time or ""} - {""})
        ok = len(set(columns)) == len(columns) and not set(columns) & set(others)
        allowed = f"columns without {', '.join(others)}, each once"
        require(ok, "dataset.features", columns, allowed)
        ok = self.periods == 1 or self.time is not None
        require(ok, "dataset.periods", self.periods, "1 without dataset.time")

    def require_below(self, data_dir: str) -> None:
        """Require that a device's settings name its own files and packages."""
        super().require_below(data_dir)
        if self.tokenizer:
            require_installed(self.tokenizer, "dataset.tokenizer")

    @abstractmethod
    def frames(self, data_dir: str) -> dict[str, pd.DataFrame]:
        """Return tables for training and perhaps testing, or raise `ConfigError`."""

    def read(self, data_dir: str) -> Parts:
        """Read the tables."""
        frames = self.frames(data_dir)
        if self.time == ROW:
            # Rows are numbered before they are divided into parts.
            frames = {
                part: frame.assign(row=frame.get(ROW, frame.index.to_series()))
                for part, frame in frames.items()
            }
        inputs = self.input_columns(frames["train"])
        for part, frame in frames.items():
            self._require(frame, inputs, f"{self.called} for the {part} part")
        both = pd.concat(frames.values(), ignore_index=True, join="inner")
        columns = {"x": self.inputs(both), "y": _plain(both[self.label])}
        if self.owner_column:
            columns["owner"] = _plain(both[self.owner_column])
        if self.time:
            columns["time"] = seconds(both[self.time], self.called)
        limits = np.cumsum([len(frame) for frame in frames.values()])[:-1]
        cut = {key: np.split(column, limits) for key, column in columns.items()}
        return {
            part: {key: pieces[place] for key, pieces in cut.items()}
            for place, part in enumerate(frames)
        }

    def inputs(self, frame: pd.DataFrame) -> NDArray[Any]:
        """Return the inputs of the rows of a table, shape (n, d)."""
        if self.image:
            shape = (self.channels, self.size, self.size)
            return images(map(self.crop, frame[self.image]), shape)
        if self.text and self.tokenizer:
            return token_numbers(frame[self.text], self.tokenizer, self.tokens)
        if self.text:
            return word_frequencies(frame[self.text], self.words)
        return encode(frame[self.input_columns(frame)], self.called)

    def crop(self, cell: Any) -> Crop:
        """Return where the image is that a value of the column `image` stands for."""
        return Crop(Path(cell))

    def scaled(self, parts: Parts) -> Parts:
        """Return the parts with their inputs shifted and scaled, but for words."""
        if self.text:
            return parts
        if self.standardise:
            return standardised_by_training(parts, self.periods)
        return super().scaled(parts)

    @property
    def owner_column(self) -> str | None:
        """Return the column that says whose a sample is."""
        return self.owner

    def input_columns(self, frame: pd.DataFrame) -> list[str]:
        """Return the columns of the inputs."""
        one = self.image or self.text
        if one:
            return [one]
        named = {self.label, self.owner_column, self.time}
        return list(self.features) or [
            key for key in frame.columns.tolist() if key not in named
        ]

    def _require(self, frame: pd.DataFrame, inputs: list[str], where: str) -> None:
        if not inputs:
            raise ConfigError(
                f"{where} has no column but {', '.join(map(str, frame.columns))}; add "
                "columns of inputs"
            )
        unnamed = [name for name in inputs if str(name).startswith("Unnamed: ")]
        allowed = "the names of the inputs: a column has no name, perhaps an index"
        require(not unnamed, "dataset.features", list(self.features), allowed)
        if frame.empty:
            raise ConfigError(f"{where} has no row; add samples")
        named = {self.label: "label", self.owner_column: "owner", self.time: "time"}
        keys = {name: key for name, key in named.items() if name}
        kind = "text" if self.text else "features"
        keys |= dict.fromkeys(inputs, "image" if self.image else kind)
        require_whole(frame, keys, where)


def _plain(column: pd.Series) -> NDArray[Any]:
    """Return numbers as they are and anything else as text."""
    number = pd.api.types.is_numeric_dtype(column)
    return column.to_numpy() if number else column.to_numpy(str)


TABLE = (
    "fix it, or save it again, as UTF-8 and with as many values in each row, or see "
    "cfl-flower list csv for other forms"
)
"""What to do about a file that is no table."""


@settings("dataset")
class FileTable(TableDataset):
    """A dataset in one file, or a pattern of files, for each part."""

    file: str = "data.csv"
    """Absolute, or below data_dir; `parts/*.csv` reads several as one."""
    test_file: str | None = None
    """The test set; null holds `test_fraction` out."""
    split: str | None = None
    """Column, as in WILDS, that is `train` for the training set, and anything else for
    the test set."""
    folder: str = ""
    """Folder of the images that `image` names, below that of the file."""
    standardise: bool = True
    remedy: ClassVar[str] = OWN_FILE

    def __post_init__(self) -> None:
        super().__post_init__()
        require(bool(self.file), "dataset.file", "''", "the name of a file")
        ok = not (self.split and self.test_file)
        require(ok, "dataset.split", self.split, "null with dataset.test_file")

    def files(self) -> tuple[str, ...]:
        """Return the file or files."""
        return (self.file, *([self.test_file] if self.test_file else []))

    @property
    def called(self) -> str:
        """What errors call it."""
        return f"{self.name} {self.file}"

    @abstractmethod
    def frame(self, path: Path) -> pd.DataFrame:
        """Read one file."""

    def frames(self, data_dir: str) -> dict[str, pd.DataFrame]:
        """Read the files of each part."""
        frames = {
            part: pd.concat(map(self._read, find(data_dir, pattern)), ignore_index=True)
            for part, pattern in zip(PARTS, self.files(), strict=False)
        }
        if self.split is None:
            return frames
        require_whole(frames["train"], {self.split: "split"}, self.called)
        said = frames["train"].pop(self.split).astype(str)
        return {
            part: frames["train"][(said == "train") == (part == "train")]
            for part in PARTS
        }

    def _read(self, path: Path) -> pd.DataFrame:
        with intact(path, TABLE):
            frame = self.frame(path)
            if self.image in frame:
                # On a device, others write the settings.
                folder = inside(path.parent, self.folder)
                frame[self.image] = [
                    str(inside(folder, name)) for name in frame[self.image].astype(str)
                ]
            return frame


WORDS = {"tab": "\t", "semicolon": ";", "comma": ",", "point": "."}
"""Characters that Hydra or the shell would want in quotes."""


@settings("dataset")
class Csv(FileTable):
    """A dataset in .csv files whose first line has the names of the columns."""

    separator: str = ","
    """What stands between two values; also the words tab and semicolon, which need no
    quotes."""
    decimal: Literal["point", "comma"] = "point"
    """What stands before the decimals of a number."""
    encoding: str = "utf-8"
    """Of the characters, by Python's name."""
    header: bool = True
    """Whether the first line has the names of the columns; they are 0, 1, … if not."""
    name: ClassVar[str] = "the .csv file"

    def frame(self, path: Path) -> pd.DataFrame:
        """Read one file, whose columns must have different names."""
        form: dict[str, Any] = {
            "sep": WORDS.get(self.separator, self.separator),
            "decimal": WORDS[self.decimal],
            "encoding": self.encoding,
        }
        first = pd.read_csv(path, **form, header=None, nrows=1, dtype=str)
        names = [str(name).strip() for name in first.iloc[0].dropna()]
        if not self.header:
            names = [str(number) for number in first]
            form |= {"names": names, "header": None}
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"several columns are called {', '.join(twice)}")
        form |= {"na_filter": False, "low_memory": False, "skipinitialspace": True}
        texts = {name: str for name in (self.label, self.owner) if name}
        found: pd.DataFrame = pd.read_csv(path, **form, dtype=texts)
        return found


@settings("dataset")
class Parquet(FileTable):
    """A dataset in .parquet files."""

    file: str = "data.parquet"
    """Absolute, or below data_dir; `parts/*.parquet` reads several as one."""
    name: ClassVar[str] = "the .parquet file"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_package("pyarrow", "dataset", "parquet", "data")

    def frame(self, path: Path) -> pd.DataFrame:
        """Read one file."""
        return pd.read_parquet(path)


@settings("dataset")
class Arff(FileTable):
    """A dataset in .arff files, such as Weka, MOA and the USP repository have."""

    file: str = "data.arff"
    """Absolute, or below data_dir; `parts/*.arff` reads several as one."""
    name: ClassVar[str] = "the .arff file"

    def frame(self, path: Path) -> pd.DataFrame:
        """Read one file."""
        # It takes a while to import.
        from scipy.io import arff  # noqa: PLC0415

        frame = pd.DataFrame(arff.loadarff(path)[0])
        for name in frame.select_dtypes(object):
            frame[name] = frame[name].str.decode("utf-8")
        return frame
