"""What a client may touch while it does a task, its own state included.

The state of a client between rounds is a directory of versioned files. Every round in
which a client changes its state writes a new version, so that the state works on any
worker, survives a crashed device, and rolls back with the checkpoint: in round t a
client reads the newest version from before t, whatever a killed run left. At most four
versions exist: the checkpointed round's, the one from before the client's last round,
which later steps of that round may read again, that round's own, and one that is still
referred to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from cfl_flower.client.evaluation import Evaluator
from cfl_flower.data.worlds.stream import Stream
from cfl_flower.data.worlds.view import View
from cfl_flower.environment.files import write_atomically
from cfl_flower.errors import SavedStateError, one_line
from cfl_flower.models import FlatModel
from cfl_flower.settings import require
from cfl_flower.types import ClientId, Config, Evaluated, Metrics, Reply, Vector

COMMON = re.compile(r"([a-z]+-)?[0-9a-f]{16}")
"""A name of arrays that many clients receive: perhaps a word, and a digest."""


@dataclass(eq=False)
class ClientState:
    """The state of one client, as named arrays, below the ``root`` of all clients'.

    A run may go back to the last checkpointed round, ``keep_from``: the newest version
    up to it is never deleted. ``alone`` is a client on a device, where no checkpoint
    follows on the same disk. Otherwise file names are synced with the checkpoint, which
    saves 5 ms per client and round.
    """

    root: Path
    client: ClientId
    keep_from: int = 0
    alone: bool = False

    def load(self, before: int) -> dict[str, np.ndarray]:
        """Return the newest version from before a round; empty if there is none."""
        versions = [
            server_round for server_round in self._versions() if server_round < before
        ]
        return _read(self._path(versions[-1])) if versions else {}

    def at(self, server_round: int) -> dict[str, np.ndarray]:
        """Return the version of exactly one round; empty if there is none."""
        try:
            return _read(self._path(server_round))
        except FileNotFoundError:
            return {}

    def part(self, name: str) -> ClientState:
        """Return a state with versions of its own, for what changes in other rounds."""
        return ClientState(self._directory, name, self.keep_from, self.alone)

    def save(
        self, server_round: int, arrays: dict[str, np.ndarray], also: int | None = None
    ) -> None:
        """Write the version of a round and delete those that are no longer needed.

        Numbers that are not finite come from a training that diverged, whose result the
        server refuses: they are not saved. The version of round ``also`` is kept.
        """
        if not all(np.isfinite(array).all() for array in arrays.values()):
            return
        self._directory.mkdir(parents=True, exist_ok=True)
        mode = 0o600 if self.alone else 0o666  # A device keeps secrets here.
        path = self._path(server_round)
        write_atomically(path, to_bytes(arrays), sync_name=self.alone, mode=mode)
        for version in self._superfluous(server_round):
            if version != also:
                self._path(version).unlink(missing_ok=True)

    def _superfluous(self, server_round: int) -> list[int]:
        """Return the versions that neither a later step nor a resume reads.

        Versions of later rounds are a killed run's, and will be written again.
        """
        versions = self._versions()
        kept = self.keep_from
        checkpointed = [version for version in versions if version <= kept]
        before = [version for version in versions if kept < version < server_round]
        return checkpointed[:-1] + before[:-1]

    def keep(self, name: str, arrays: dict[str, np.ndarray]) -> None:
        """Save arrays that many clients receive, by their digest, once per machine."""
        path = self._common(name)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, to_bytes(arrays), sync_name=self.alone)

    def kept(self, name: str) -> dict[str, np.ndarray]:
        """Return what `keep` saved; empty if there is nothing."""
        path = self._common(name)
        return _load_common(path) if path.exists() else {}

    def _common(self, name: str) -> Path:
        # The server says it: it must not lead out of the folder.
        allowed = "a digest of 16 hex digits, or a word before it"
        require(COMMON.fullmatch(name) is not None, "name", name, allowed)
        return self.root / ".common" / f"{name}.safetensors"

    @property
    def _directory(self) -> Path:
        return self.root / str(self.client)

    def _path(self, server_round: int) -> Path:
        return self._directory / f"{server_round:08d}.safetensors"

    def _versions(self) -> list[int]:
        return sorted(int(p.stem) for p in self._directory.glob("[0-9]*.safetensors"))


def to_bytes(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return arrays as a file, which has the values of views, too."""
    return save({name: np.asarray(of, order="C") for name, of in arrays.items()})


def _read(path: Path) -> dict[str, np.ndarray]:
    """Return a file's arrays; raises `SavedStateError` if it is damaged."""
    try:
        return load(path.read_bytes())
    except SafetensorError as error:
        remedy = f"{path} is damaged ({one_line(str(error))}); remove it"
        raise SavedStateError(remedy) from error


_load_common = lru_cache(maxsize=1)(_read)
"""Reads once for all clients of a worker: the content of a name never changes."""


@dataclass
class ClientContext:
    """All that a client may touch; it opens no files and reads no global settings."""

    client: ClientId
    round: int
    """The round whose data the task means."""
    seed: int
    """The run's seed."""
    stream: Stream
    model: FlatModel
    """Shared by all virtual clients of a worker, so to be loaded before use."""
    evaluator: Evaluator
    """Tests models, shared ones only once."""
    settings: Any
    """The strategy's settings."""
    state: ClientState
    initial: Callable[[], Vector]
    """Returns the run's common initial model."""
    phase: str = "train"
    """``query``, ``train`` or ``evaluate``."""
    attack: str = ""
    """Attack of a malicious client; empty for an honest one."""
    place: int | None = None
    """Position in the stream of data, if it differs from the id."""
    folder: Path | None = None
    """A real device's own data."""
    secret: Callable[[], bytes] | None = None
    """Returns 256 bits from which a real device draws its noise."""
    predictions: Path | None = None
    """File for those of a test, if the owner of a real device asks for that."""
    look: Callable[[], Stream] | None = None
    """Reads them again, and returns the stream of what is there now."""

    @property
    def upcoming(self) -> int:
        """The round that trains next, whose data a client reports.

        A query is asked before its round's training, a test follows it.
        """
        return self.round if self.phase == "query" else self.round + 1

    def view(self, server_round: int) -> View:
        """Return the client's data of a round."""
        place = self.client if self.place is None else self.place
        return self.stream.view(int(place), server_round)


class Client(Protocol):
    """What a client app calls: one client for one task, made from its context."""

    def answer(self, parameters: list[Vector], config: Config) -> Reply:
        """Answer a query."""

    def fit(self, parameters: list[Vector], config: Config) -> Reply:
        """Train."""

    def starting_model(self, parameters: list[Vector]) -> Vector:
        """Return the received model that training starts from."""

    def start_loss(self, received: Vector, config: Config) -> Metrics:
        """Return the losses of a received model that the server asks for."""

    def evaluate(self, parameters: list[Vector], config: Config) -> Evaluated:
        """Test, and report a drift."""

    def test_unlabelled(self, among: list[Vector], config: Config) -> Metrics:
        """Test the model that test samples choose without labels."""
