"""The version of this code, by which server and clients know that they agree."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path


@cache
def code_digest() -> str:
    """Name the version of this code: a hash over its modules.

    Ray workers may import another checkout's code (see `fleet.Fleet.discover`).
    """
    root = Path(__file__).parents[1]
    state = hashlib.blake2b(digest_size=8)
    for room in ("cfl_flower", "clients", "strategies"):
        for path in sorted((root / room).rglob("*.py")):
            state.update(path.relative_to(root).as_posix().encode())
            state.update(path.read_bytes())
    return state.hexdigest()
