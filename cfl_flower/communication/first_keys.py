"""The public key that each client announced first in a run, which stays its key."""

from __future__ import annotations

import json
from pathlib import Path

from cfl_flower.communication.masks import any_in_common
from cfl_flower.environment.files import write_atomically
from cfl_flower.errors import ConfigError
from cfl_flower.types import ClientId

FIRST_KEYS = ".first-keys.json"
"""The file in a run's folder."""


class FirstKeys:
    """First keys, on disk, so that they are the same after the server was restarted.

    ``run`` is the run's token: the keys of another run in the folder are forgotten.
    Raises `ConfigError` if the file is damaged.
    """

    def __init__(self, folder: Path, run: str) -> None:
        self._path = folder / FIRST_KEYS
        self.run = run
        self._keys: dict[ClientId, bytes] = {}
        if not self._path.exists():
            return
        try:
            known, rows = json.loads(self._path.read_text())
            keys = {client: bytes.fromhex(key) for client, key in rows}
        except (ValueError, TypeError) as error:
            raise ConfigError(
                f"{self._path} is damaged; remove it, and each device's next key is "
                "taken for its first"
            ) from error
        if known == run:
            self._keys = keys

    def is_first(self, client: ClientId, key: bytes) -> bool:
        """Return whether a client announced this key first."""
        return self._keys.get(client) == key

    def take(self, client: ClientId, key: bytes) -> str | None:
        """Take a client's first key, or return why another one is not its key."""
        others = [each for name, each in self._keys.items() if name != client]
        taken = any(any_in_common([key, each]) for each in others)
        if client not in self._keys and not taken:
            self._keys[client] = key
            rows = [[each, known.hex()] for each, known in self._keys.items()]
            write_atomically(self._path, json.dumps([self.run, rows]).encode())
        if self.is_first(client, key):
            return None
        return "another's" if taken else "not its first one"
