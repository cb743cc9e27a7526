"""Files that are complete or not there, after kill -9 or the power switch."""

from __future__ import annotations

import errno
import os
from pathlib import Path


def write_atomically(path: Path, data: bytes, sync_name: bool = True) -> None:
    """Write a file in full, or leave what was there before.

    Parameters
    ----------
    sync_name : bool
        Whether the file has its name on the disk, too, when this returns.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    if sync_name:
        sync_folder(path.parent)


def append_durably(path: Path, text: str) -> None:
    """Add to a file's end; on the disk itself when this returns."""
    with path.open("a", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Let a folder's names reach the disk: until then a new file may have none."""
    if not hasattr(os, "O_DIRECTORY"):
        return  # Windows opens no folders.
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems have nothing to sync of a folder.
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)
