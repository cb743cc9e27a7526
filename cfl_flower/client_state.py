"""What a client remembers between rounds: a directory of versioned files.

Every round in which a client changes its state writes a new version, so the state works
on any worker, survives a crashed device, and rolls back with the checkpoint: a client
in round t reads the newest version from before t, whatever a killed run left behind.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors.numpy import load, save

from cfl_flower.files import write_atomically
from cfl_flower.types import ClientId


class ClientState:
    """The state of one client, as named arrays.

    Parameters
    ----------
    root : Path
        The directory of all clients' states.
    client : ClientId
    keep_from : int
        The last checkpointed round: the newest version up to it is never deleted.
    """

    def __init__(self, root: Path, client: ClientId, keep_from: int = 0) -> None:
        self._root, self._client, self._keep_from = root, client, keep_from

    def load(self, before: int) -> dict[str, np.ndarray]:
        """Return the newest version from before a round; empty if there is none."""
        versions = [round for round in self._versions() if round < before]
        return load(self._path(versions[-1]).read_bytes()) if versions else {}

    def save(self, round: int, arrays: dict[str, np.ndarray]) -> None:
        """Write the version of a round and drop those that nobody can ask for.

        What is not named in it keeps the value that it had.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        known = self.load(before=round + 1)
        write_atomically(self._path(round), save(known | arrays))
        old = [version for version in self._versions() if version <= self._keep_from]
        for version in old[:-1]:
            self._path(version).unlink(missing_ok=True)

    @property
    def _directory(self) -> Path:
        return self._root / str(self._client)

    def _path(self, round: int) -> Path:
        return self._directory / f"{round:08d}.safetensors"

    def _versions(self) -> list[int]:
        return sorted(int(p.stem) for p in self._directory.glob("[0-9]*.safetensors"))
