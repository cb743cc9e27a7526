"""The version of this code, on which server and clients agree and which runs record."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from cfl_flower.aliases import HOME

VERSION = "0.1.0"
"""The version of this package, as in pyproject.toml."""

COMMIT = "CFL_COMMIT"
"""Environment variable: the commit of a copy of this code that is outside of git."""


@cache
def code_digest() -> str:
    """Name the version of this code: a hash over its modules.

    Ray workers may import another checkout's code (see `fleet.Fleet.discover`).
    """
    rooms = ("cfl_flower", "clients", "strategies")
    return digest_of_files(
        HOME, [path for room in rooms for path in sorted((HOME / room).rglob("*.py"))]
    )


def digest_of_files(root: Path, paths: Iterable[Path]) -> str:
    """Return a hash over files: over their names below ``root``, and their contents."""
    state = hashlib.blake2b(digest_size=8)
    for path in paths:
        state.update(path.relative_to(root).as_posix().encode())
        state.update(path.read_bytes())
    return state.hexdigest()


@cache
def commit() -> str | None:
    """Return the commit of this checkout, with ``-dirty`` if tracked files differ.

    None where the code is in no checkout, such as an installed wheel, or git is not
    installed: the digest of the code names it there.
    """
    if not (HOME / ".git").exists():
        return os.environ.get(COMMIT) or None
    command = ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    try:
        found = subprocess.run(
            command, cwd=HOME, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip()
