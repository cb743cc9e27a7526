"""What datasets read from files share: one line for a fault, arrays made once."""

from __future__ import annotations

import csv
import pickle
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, Any, ClassVar, NamedTuple, TypeAlias
from zipfile import BadZipFile

import numpy as np
from numpy.typing import DTypeLike, NDArray
from PIL import Image
from pydantic import Field

from cfl_flower.data.pool import Arrays, Pool, cache_dir, cached_arrays
from cfl_flower.errors import ConfigError
from cfl_flower.settings import require
from cfl_flower.types import IntArray

PARTS = ("train", "test")

TAKEN_AT_ONCE = 1024
"""Images decoded before they are written: bounds the memory a large set takes."""


@contextmanager
def readable(what: str) -> Iterator[None]:
    """Turn what loaders raise on a corrupt or truncated file into one line.

    Raises
    ------
    ConfigError
    """
    try:
        yield
    except (OSError, EOFError, ValueError, AssertionError, RuntimeError, KeyError) as e:
        detail = str(e).strip().splitlines() or [type(e).__name__]
        raise _unreadable(what, detail[0]) from e
    except (zlib.error, pickle.UnpicklingError) as error:
        raise _unreadable(what, str(error)) from error


def _unreadable(what: str, detail: str) -> ConfigError:
    return ConfigError(
        f"{what} cannot be read ({detail}); a file is corrupt or cut off, fetch it "
        "again"
    )


@dataclass(frozen=True)
class FileDataset:
    """A dataset made once from files below data_dir and then memory-mapped."""

    name: ClassVar[str]

    def files(self) -> tuple[str, ...]:
        """Return patterns below data_dir; each must match at least one file.

        What they match is also what tells when the arrays are out of date.
        """
        raise NotImplementedError

    def arrays(self, data_dir: str) -> Arrays:
        """Read the files into arrays named as `named` does: ``x_train``, ``y_train``.

        Raises
        ------
        ConfigError
        """
        raise NotImplementedError

    def check(self, data_dir: str) -> None:
        """Require at least one file for each pattern.

        Raises
        ------
        ConfigError
        """
        missing = [pattern for pattern in self.files() if not find(data_dir, pattern)]
        if missing:
            raise ConfigError(
                f"{self.name} is not in data_dir={data_dir}: it lacks "
                f"{', '.join(missing)}; put the files there"
            )

    def load(self, data_dir: str) -> tuple[Pool, Pool]:
        """Return the samples for training and those for testing.

        Raises
        ------
        ConfigError
        """
        self.check(data_dir)
        # Other settings give other arrays.
        name = "-".join(map(str, (self.name, *astuple(self))))
        sources = [path for glob in self.files() for path in find(data_dir, glob)]
        return pools(cached_arrays(name, sources, lambda: self.arrays(data_dir)))


def find(data_dir: str, pattern: str) -> list[Path]:
    """Return what matches a pattern below a folder, in the order of the names."""
    return sorted(Path(data_dir).glob(pattern))


def of_one_type(inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Return inputs that can be put together: bytes, or floats with pixels in [0, 1].

    Examples
    --------
    >>> of_one_type([np.uint8([0, 255]), np.float32([0.5])])
    [array([0., 1.], dtype=float32), array([0.5], dtype=float32)]
    """
    if all(each.dtype == inputs[0].dtype for each in inputs):
        return list(inputs)
    return [
        (each / np.float32(255)).astype(np.float32) if each.dtype == np.uint8 else each
        for each in inputs
    ]


def named(part: str, **arrays: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Name the arrays of one part for `cached_arrays`.

    Examples
    --------
    >>> list(named("test", x=np.zeros(1), y=np.zeros(1)))
    ['x_test', 'y_test']
    """
    return {f"{key}_{part}": array for key, array in arrays.items()}


def pools(arrays: Arrays) -> tuple[Pool, Pool]:
    """Return the training and the test pool of arrays that `named` has named."""
    train, test = (
        Pool.from_arrays(
            {
                key.removesuffix(f"_{part}"): array
                for key, array in arrays.items()
                if key.endswith(f"_{part}")
            }
        )
        for part in PARTS
    )
    return train, test


def blank(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Return an array of zeros on disk, for sets larger than memory.

    The file has no name and is gone with the array.
    """
    if not shape[0]:
        return np.zeros(shape, dtype)
    cache_dir().mkdir(parents=True, exist_ok=True)
    with TemporaryFile(dir=cache_dir()) as file:
        return np.memmap(file, dtype, "w+", shape=shape)


def numbered(names: Iterable[str]) -> dict[str, int]:
    """Give distinct names numbers in their order.

    Examples
    --------
    >>> numbered(["f12", "f03", "f12"])
    {'f03': 0, 'f12': 1}
    """
    return {name: number for number, name in enumerate(sorted(set(names)))}


def held_out(owners: IntArray, fraction: float) -> NDArray[np.bool_]:
    """Mark a share of each owner's samples for testing, the same in every run.

    An owner of two samples or more has at least one in either part.
    """
    order = np.lexsort((np.random.default_rng(0).random(len(owners)), owners))
    _, first, counts = np.unique(owners[order], return_index=True, return_counts=True)
    rank = np.empty(len(owners), np.int64)
    rank[order] = np.arange(len(owners)) - np.repeat(first, counts)
    share = np.minimum(np.maximum(np.rint(counts * fraction), 1), counts - 1)
    wanted = np.empty(len(owners), np.int64)
    wanted[order] = np.repeat(share, counts)
    return rank < wanted


TestFraction = Annotated[float, Field(ge=0.01, le=0.99)]
"""Share of the samples that are for testing; both parts get something."""


def require_test_fraction(fraction: float) -> None:
    """Require that both parts get something."""
    allowed = "a number from 0.01 to 0.99"
    require(0.01 <= fraction <= 0.99, "dataset.test_fraction", fraction, allowed)


@contextmanager
def intact(what: object) -> Iterator[None]:
    """Turn whatever a damaged json, csv, npz or image makes a reader raise into a line.

    Raises
    ------
    ConfigError
    """
    with readable(str(what)):
        try:
            yield
        except KeyError as error:
            raise ValueError(f"it lacks {error}") from error
        except (TypeError, AttributeError, IndexError) as error:
            raise ValueError(f"not the expected structure: {error}") from error
        except (SyntaxError, struct.error, csv.Error, BadZipFile) as error:
            raise ValueError(str(error)) from error


def table(
    path: Path, columns: Sequence[str], header: bool = True
) -> list[dict[str, str]]:
    """Read columns of a csv.

    Parameters
    ----------
    path : Path
    columns : sequence of str
        The columns to keep, or all of them if the file has no header.
    header : bool
        Whether the first line names the columns.

    Raises
    ------
    ConfigError
        If a column is missing or a line is cut off.
    """
    with intact(path), path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file, None if header else columns)
        lacking = set(columns) - set(reader.fieldnames or ())
        if lacking:
            raise ValueError(f"no column {', '.join(sorted(lacking))}")
        rows = []
        for row in reader:
            # Some tools write the names where others do not.
            if list(row.values()) == list(row):
                continue
            if any(row[column] is None for column in columns):
                raise ValueError(f"line {reader.line_num} is cut off")
            rows.append({column: row[column] for column in columns})
        return rows


Box: TypeAlias = tuple[int, int, int, int]
"""Left, top, right, bottom, in pixels."""


class Crop(NamedTuple):
    """One input: an image, or a box in it.

    Attributes
    ----------
    path : Path
    box : Box or None
        None for the whole.
    """

    path: Path
    box: Box | None = None


def pixels(
    path: Path, boxes: Sequence[Box | None], shape: tuple[int, ...]
) -> NDArray[np.uint8]:
    """Read boxes of one image, each resized to a shape (1 or 3, height, width).

    Raises
    ------
    ConfigError
    """
    channels, height, width = shape
    found = np.empty((len(boxes), height, width, channels), np.uint8)
    with intact(path), Image.open(path) as file:
        image = file.convert("RGB" if channels == 3 else "L")
        for row, box in enumerate(boxes):
            part = image.crop(box) if box else image
            part = part.resize((width, height), Image.Resampling.BILINEAR)
            found[row] = np.asarray(part).reshape(height, width, channels)
    return found.transpose(0, 3, 1, 2)


def images(crops: Iterable[Crop], shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Read many inputs into one array on disk, shape (n, *shape).

    Raises
    ------
    ConfigError
    """
    # Boxes of one image that follow each other cost one decoding.
    groups = [
        (path, [crop.box for crop in group])
        for path, group in groupby(crops, key=attrgetter("path"))
    ]
    x = blank((sum(len(boxes) for _, boxes in groups), *shape), np.uint8)
    done = 0
    with ThreadPoolExecutor() as threads:
        for start in range(0, len(groups), TAKEN_AT_ONCE):
            some = groups[start : start + TAKEN_AT_ONCE]
            for found in threads.map(
                lambda group: pixels(group[0], group[1], shape), some
            ):
                x[done : done + len(found)] = found
                done += len(found)
    return x
