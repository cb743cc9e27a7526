"""Which real devices are left alone for a while, as they failed.

Without rounds nothing keeps a broken device from being asked again at once, and from
failing again at once: it rests after each failure.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection

from cfl_flower.types import ClientId

REST = 10.0
"""Seconds until a device that failed is asked again."""

TRIES = 3
"""Failures in a row after which nothing more is hoped of a device."""


class Backoff:
    """The failures of every client since it last succeeded."""

    def __init__(self) -> None:
        self._failures: Counter[ClientId] = Counter()
        self._until: dict[ClientId, float] = {}

    def note(self, client: ClientId, sound: bool) -> None:
        """Note that a client succeeded, or failed and rests from now on."""
        if sound:
            del self._failures[client]
            self._until.pop(client, None)
            return
        self._failures[client] += 1
        self._until[client] = time.monotonic() + REST

    @property
    def resting(self) -> set[ClientId]:
        """The clients that are not to be asked now."""
        now = time.monotonic()
        return {client for client, until in self._until.items() if now < until}

    def hopeless(self, clients: Collection[ClientId]) -> bool:
        """Return whether every one of some clients fails again and again."""
        failed = [self._failures[client] >= TRIES for client in clients]
        return bool(failed) and all(failed)
