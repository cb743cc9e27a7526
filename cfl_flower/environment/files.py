"""Files that are complete or absent, even after kill -9 or a power failure."""

from __future__ import annotations

import errno
import os
import re
from functools import partial
from pathlib import Path

from cfl_flower.errors import refused

LEFTOVER = re.compile(r"\..+\.([0-9]{1,9})\.tmp")
"""The name of a file that is not whole yet, with the process that writes it."""


def write_atomically(
    path: Path, data: bytes | memoryview, sync_name: bool = True, mode: int = 0o666
) -> None:
    """Replace a file in one step; its name is synced to disk, too, if asked for.

    ``mode`` has its permissions, but for what the umask takes away.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with open(temporary, "wb", opener=partial(os.open, mode=mode)) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    if sync_name:
        sync_folder(path.parent)


def made_once(path: Path) -> bytes:
    """Return 256 bits that nobody else knows, in a file, from the first call on."""
    if not path.exists():
        write_atomically(path, os.urandom(32), mode=0o600)
    return path.read_bytes()


def remove_leftovers(folder: Path) -> None:
    """Remove, here and below, what processes left that were killed as they wrote.

    Those of a process that goes on are left alone, and so is a file whose process has
    left its number to another one.
    """
    import psutil  # noqa: PLC0415 - devices have it not

    for path in folder.rglob(".*.tmp"):
        named = LEFTOVER.fullmatch(path.name)
        if named and not psutil.pid_exists(int(named[1])) and path.is_file():
            path.unlink(missing_ok=True)


def append_durably(path: Path, text: str) -> None:
    """Append to a file, synced to disk."""
    with path.open("a", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def link_out(folder: Path) -> Path | None:
    """Return an entry, at any level, that is a link out of a folder; None without.

    Links are not followed. Nothing of a run is in a hidden folder, such as the `.venv`
    of a project whose folder is the run's.
    """
    root = os.path.realpath(folder)
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            # Path.resolve raises for a link to itself.
            path = Path(place, name)
            if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(
                root
            ):
                return path
        folders[:] = [name for name in folders if not name.startswith(".")]
    return None


def sync_folder(folder: Path) -> None:
    """Sync a folder's file names to disk; until then a new file may have none."""
    if not hasattr(os, "O_DIRECTORY"):
        return  # Windows opens no folders.
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot sync folders.
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)


def make_folder(key: str, path: Path) -> None:
    """Create a folder, or raise a `ConfigError` if nothing can be written into it."""
    with refused(f"{key}={path} cannot be written", "use a folder of your own"):
        path.mkdir(parents=True, exist_ok=True)
        probe = path / ".probe"
        probe.touch()
        probe.unlink(missing_ok=True)
