"""Whether what is not here may be fetched: on a device, never."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_forbidden: list[bool] = []
"""Not empty inside of `nothing_fetched`."""


@contextmanager
def nothing_fetched() -> Iterator[None]:
    """Forbid in the body that anything is fetched.

    What a device does is written by others, who name no hosts for it.
    """
    _forbidden.append(True)
    try:
        yield
    finally:
        _forbidden.pop()


def may_fetch() -> bool:
    """Return whether files that settings name may be fetched from elsewhere."""
    return not _forbidden
