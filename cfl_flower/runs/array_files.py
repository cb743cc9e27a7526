"""Large arrays on disk, each once, in a file that its content names.

What has not changed since the last checkpoint is there already, and is not written
again; what several places of a state share is one file. Files are complete or absent,
and those that no checkpoint names any more are deleted after the next one is whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cfl_flower.environment.files import write_atomically

LARGE = 2**20
"""Bytes from which an array has a file of its own."""

SUFFIX = ".array"


class DamagedArrayError(Exception):
    """A file of an array does not have the content that its name says."""


@dataclass(frozen=True)
class Saved:
    """What a checkpoint says of an array that has a file of its own."""

    digest: str
    """SHA-256 of its bytes, which names the file."""
    dtype: str
    shape: list[int]


def digest_of(array: np.ndarray) -> str:
    """Return the SHA-256 of an array's bytes, in hexadecimal."""
    return hashlib.sha256(_bytes_of(array)).hexdigest()


def _bytes_of(array: np.ndarray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def write_arrays(
    folder: Path, arrays: Mapping[str, np.ndarray]
) -> dict[str, dict[str, Any]]:
    """Write contiguous arrays that are not there yet; return what is saved of each.

    The names of the files are not synced to disk: that of a later one is to be.
    """
    # One object is often in many places: of all clusters that nobody trained yet.
    digests: dict[int, str] = {}
    saved = {}
    for name, array in arrays.items():
        if id(array) not in digests:
            digest = digest_of(array)
            digests[id(array)] = digest
            path = folder / f"{digest}{SUFFIX}"
            if not path.exists():
                write_atomically(path, _bytes_of(array), sync_name=False)
        found = Saved(digests[id(array)], array.dtype.str, list(array.shape))
        saved[name] = asdict(found)
    return saved


def read_arrays(
    folder: Path, saved: Mapping[str, Mapping[str, Any]]
) -> dict[str, np.ndarray]:
    """Read what `write_arrays` wrote.

    Equal float32 vectors are one object, as models and directions are never changed in
    place; all else is an array of its own. Raises `OSError` if a file is missing, and
    `DamagedArrayError` if it has another content.
    """
    vectors: dict[str, np.ndarray] = {}
    arrays = {}
    for name, row in saved.items():
        found = Saved(**row)
        if (vector := vectors.get(found.digest)) is not None:
            arrays[name] = vector
            continue
        name_of_file = Path(f"{found.digest}{SUFFIX}").name
        array = np.fromfile(folder / name_of_file, np.dtype(found.dtype))
        if digest_of(array) != found.digest:
            raise DamagedArrayError(found.digest)
        arrays[name] = array.reshape(found.shape)
        if array.dtype == np.float32 and len(found.shape) == 1:
            vectors[found.digest] = arrays[name]
    return arrays


def delete_others(folder: Path, kept: Collection[str]) -> None:
    """Delete files of arrays whose digests are not kept, and what a kill left."""
    for path in folder.glob(f"*{SUFFIX}"):
        if path.stem not in kept:
            path.unlink()
    for path in folder.glob(".*.tmp"):
        path.unlink()
