"""Large arrays on disk, each once, in a file that its content names.

What has not changed since the last checkpoint is there already, and is not written
again; what several places of a state share is one file. Files are complete or absent,
and those that no checkpoint names any more are deleted after the next one is whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cfl_flower.environment.files import write_atomically

LARGE = 2**20
"""Bytes from which an array has a file of its own."""

SUFFIX = ".array"


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
            digests[id(array)] = digest_of(array)
            path = folder / f"{digests[id(array)]}{SUFFIX}"
            if not path.exists():
                write_atomically(path, _bytes_of(array), sync_name=False)
        digest = digests[id(array)]
        shape = list(array.shape)
        saved[name] = {"digest": digest, "dtype": array.dtype.str, "shape": shape}
    return saved


def read_arrays(
    folder: Path, saved: Mapping[str, Mapping[str, Any]]
) -> dict[str, np.ndarray]:
    """Read what `write_arrays` wrote.

    Equal float32 vectors are one object, as models and directions are never changed in
    place; all else is an array of its own. Raises `OSError` if a file is missing, and
    `ValueError` if it does not have the content that its name says.
    """
    vectors: dict[str, np.ndarray] = {}
    arrays = {}
    for name, row in saved.items():
        digest = row["digest"]
        if digest in vectors:
            arrays[name] = vectors[digest]
            continue
        # A name, not a path: no file outside of the folder is read.
        path = folder / Path(f"{digest}{SUFFIX}").name
        array = np.fromfile(path, np.dtype(row["dtype"]))
        if digest_of(array) != digest:
            raise ValueError(f"{path} is not the array that was saved")
        arrays[name] = array.reshape(row["shape"])
        if array.dtype == np.float32 and len(row["shape"]) == 1:
            vectors[digest] = arrays[name]
    return arrays


def delete_others(folder: Path, kept: Collection[str]) -> None:
    """Delete files of arrays whose digests are not kept."""
    for path in folder.glob(f"*{SUFFIX}"):
        if path.stem not in kept:
            path.unlink()
