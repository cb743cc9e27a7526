"""What datasets read from files share: one line for a fault, arrays made once."""

from __future__ import annotations

import gzip
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path, PurePath
from tempfile import TemporaryFile
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import DTypeLike, NDArray
from pydantic import Field

from cfl_flower.data.reading.pool import (
    Dataset,
    Parts,
    Pool,
    cache_dir,
    cached_arrays,
    pools,
)
from cfl_flower.errors import ConfigError, intact
from cfl_flower.settings import require
from cfl_flower.types import IntArray

_fetching: list[bool] = []


@contextmanager
def fetching(allowed: bool) -> Iterator[None]:
    """Allow or forbid in the body that anything is fetched, whatever settings ask.

    What a device does is written by others, who name no hosts for it.
    """
    _fetching.append(allowed)
    try:
        yield
    finally:
        _fetching.pop()


def may_fetch(asked: bool = True) -> bool:
    """Return whether files may be fetched from elsewhere, where settings ask for it."""
    return _fetching[-1] if _fetching else asked


FREELY = 2**30
"""Bytes to which any file may unpack."""

TIMES = 100
"""How often its own size a file may unpack to, where that is more.

Zeros can be packed a thousandfold, samples seldom more than tenfold.
"""

TOO_MUCH = f"it unpacks to more than {TIMES} times its size"


@contextmanager
def open_npz(path: Path) -> Iterator[NpzFile]:
    """Open a .npz file that unpacks to a bounded size, or raise `ConfigError`."""
    with intact(path), np.load(path) as stored:
        # No more of a member is read than the file's directory says.
        size = sum(member.file_size for member in stored.zip.infolist())
        if size > most_of(path):
            raise ValueError(f"{TOO_MUCH}; save it with numpy.savez, uncompressed")
        yield stored


def unpack_gz(path: Path) -> bytes:
    """Return the content of a .gz file, or raise `ValueError` if it is too much."""
    most = most_of(path)
    with gzip.open(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"{TOO_MUCH}; unpack it")
    return content


def most_of(path: Path) -> int:
    """Return the bytes to which a file may unpack."""
    return max(FREELY, TIMES * path.stat().st_size)


def is_below(name: str) -> bool:
    """Return whether a name cannot lead out of the folder that it is relative to."""
    named = PurePath(name)
    return not named.anchor and ".." not in named.parts


def inside(folder: Path, name: str) -> Path:
    """Return the path of a listed file below a folder, or raise `ValueError`."""
    if not is_below(name) or not name.isprintable():
        raise ValueError(f"it lists {name!r}, which is no file below {folder}")
    return folder / name


@dataclass(frozen=True)
class FileDataset(Dataset, ABC):
    """A dataset made once from files below data_dir and then memory-mapped."""

    name: ClassVar[str]
    patterns: ClassVar[tuple[str, ...]]
    remedy: ClassVar[str] = "put the files there"

    def files(self) -> tuple[str, ...]:
        """Return patterns below data_dir; each must match at least one file.

        What they match is also what tells when the arrays are out of date.
        """
        return self.patterns

    @abstractmethod
    def arrays(self, data_dir: str) -> Parts:
        """Read the files, or raise `ConfigError`."""

    def absent(self, data_dir: str) -> list[str]:
        """Return the patterns of files that are not there."""
        return [pattern for pattern in self.files() if not find(data_dir, pattern)]

    def check(self, data_dir: str) -> None:
        """Require at least one file for each pattern, or raise `ConfigError`."""
        if missing := self.absent(data_dir):
            raise ConfigError(
                f"{self.name} is not in data_dir={data_dir}: it lacks "
                f"{', '.join(missing)}; {self.remedy}"
            )

    def require_below(self, data_dir: str) -> None:
        """Require that a device's settings, which others write, name its own files.

        Its folder's links are its owner's, and are followed. Raises `ConfigError` if a
        file or pattern is absolute or has `..`.
        """
        for pattern in self.files():
            allowed = f"files below data-dir={data_dir}"
            require(is_below(pattern), "dataset", pattern, allowed)

    def load(self, data_dir: str) -> tuple[Pool, Pool]:
        """Return the samples for training and those for testing."""
        return pools(self.stored(data_dir))

    def stored(self, data_dir: str) -> Parts:
        """Return the arrays, memory-mapped, made from the files if they are not yet."""
        self.check(data_dir)
        # Other settings give other arrays.
        parts = [self.name, *map(repr, self.recipe()), self.version(data_dir)]
        return cached_arrays("-".join(parts), lambda: self.arrays(data_dir))

    def version(self, data_dir: str) -> str:
        """Return what changes when a file comes, goes or changes; opens none."""
        found = [path for glob in self.files() for path in find(data_dir, glob)]
        # What is below a folder that matches is read, too.
        inner = {below for path in found for below in path.rglob("*") if below.exists()}
        known = [(str(p.absolute()), p.stat()) for p in sorted({*found, *inner})]
        return repr([(name, of.st_size, of.st_mtime_ns) for name, of in known])

    def recipe(self) -> tuple[object, ...]:
        """Return the settings that the arrays depend on."""
        return astuple(self)


def find(data_dir: str, pattern: str) -> list[Path]:
    """Return what matches a pattern below a folder, in the order of the names.

    Numbers in names are in the order of their size: 2 is before 10. An absolute pattern
    is not below the folder. A name that exists is no pattern, whatever characters it
    has.
    """
    below = Path(pattern)
    folder = Path(below.anchor or data_dir)
    rest = [part for part in below.parts if part != below.anchor]
    # The folder itself is no file of a dataset.
    if not rest:
        return []
    while rest and (folder / rest[0]).exists():
        folder /= rest.pop(0)
    matching = folder.glob("/".join(rest)) if rest else [folder]
    # A link may lead nowhere.
    return sorted((path for path in matching if path.exists()), key=_by_numbers)


def _by_numbers(path: Path) -> tuple[list[str], Path]:
    return [re.sub("[0-9]+", lambda n: n[0].zfill(255), p) for p in path.parts], path


def of_one_type(inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """Return inputs that can be joined: bytes, or floats with pixels in [0, 1]."""
    if len({each.dtype for each in inputs}) == 1:
        return list(inputs)
    top = np.float32(255)
    return [
        (each / top).astype(np.float32) if each.dtype == np.uint8 else each
        for each in inputs
    ]


def as_float32(x: NDArray[Any]) -> NDArray[np.float32]:
    """Return numbers as float32, or raise `ValueError` if one has no finite value."""
    if x.dtype.kind not in "iufb":
        raise ValueError(f"inputs are {x.dtype}, not numbers")
    with np.errstate(over="ignore"):
        found: NDArray[np.float32] = x.astype(np.float32)
    finite = np.isfinite(found)
    if not finite.all():
        place = np.argwhere(~finite)[0]
        value = x[tuple(place)]
        fault = "no value; leave it out"
        if np.isfinite(value):
            fault = "too large for float32; scale x"
        raise ValueError(f"inputs: row {place[0] + 1} has {value:g}, {fault}")
    return found


def channels_first(images: NDArray[Any]) -> NDArray[Any]:
    """Return images (n, height, width) or (n, height, width, channels) as torch's."""
    return images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)


def blank(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Return an array of zeros on disk, for sets larger than memory.

    The file has no name and is gone with the array.
    """
    if not shape[0]:
        return np.zeros(shape, dtype)
    cache_dir().mkdir(parents=True, exist_ok=True)
    with TemporaryFile(dir=cache_dir()) as file:
        return np.memmap(file, dtype, "w+", shape=shape)


def held_out(owners: IntArray, fraction: float) -> NDArray[np.bool_]:
    """Mark a share of each owner's samples for testing, the same in every run.

    An owner of two samples or more has at least one in either part.
    """
    order = np.lexsort((np.random.default_rng(0).random(len(owners)), owners))
    _, first, counts = np.unique(owners[order], return_index=True, return_counts=True)
    rank = np.arange(len(owners)) - np.repeat(first, counts)
    share = np.minimum(np.maximum(np.rint(counts * fraction), 1), counts - 1)
    marked = np.empty(len(owners), bool)
    marked[order] = rank < np.repeat(share, counts)
    return marked


TestFraction = Annotated[float, Field(ge=0.01, le=0.99)]
"""Share of the samples that are for testing; both parts get something."""
