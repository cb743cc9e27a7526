"""Tables in files: comma-separated, or Parquet."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Collection
from os.path import isfile
from pathlib import Path
from typing import Any, ClassVar, Literal

import pandas as pd
from numpy.typing import NDArray

from cfl_flower.data.datasets.columns import column_names, refuse
from cfl_flower.data.datasets.frames import Frames, TableDataset
from cfl_flower.data.datasets.missing import is_absent
from cfl_flower.data.reading.files import find, inside
from cfl_flower.data.reading.inferred import OWN_FILE
from cfl_flower.data.reading.pool import PARTS
from cfl_flower.errors import intact
from cfl_flower.settings import require, require_package, settings


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
