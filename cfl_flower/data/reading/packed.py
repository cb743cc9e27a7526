"""Packed files, which may be somebody else's: what they unpack to is bounded."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.lib.npyio import NpzFile

from cfl_flower.data.reading.files import intact

FREELY = 2**30
"""Bytes to which any file may unpack."""

TIMES = 100
"""How often its own size a file may unpack to, where that is more.

Zeros can be packed a thousandfold, samples seldom more than tenfold.
"""

TOO_MUCH = f"it unpacks to more than {TIMES} times its size"


@contextmanager
def open_npz(path: Path) -> Iterator[NpzFile]:
    """Open a .npz file whose arrays take no more memory than one of its size may.

    Raises `ConfigError`.
    """
    with intact(path), np.load(path) as stored:
        # No more of a member is read than the file's directory says.
        size = sum(member.file_size for member in stored.zip.infolist())
        if size > most_of(path):
            raise ValueError(f"{TOO_MUCH}; save it with numpy.savez, uncompressed")
        yield stored


def unpack_gz(path: Path) -> bytes:
    """Return the content of a .gz file.

    Raises `ValueError` if it is more than a file of its size may hold.
    """
    most = most_of(path)
    with gzip.open(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"{TOO_MUCH}; unpack it")
    return content


def most_of(path: Path) -> int:
    """Return the bytes to which a file may unpack."""
    return max(FREELY, TIMES * path.stat().st_size)
