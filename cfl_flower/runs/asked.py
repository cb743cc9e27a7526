"""Whom a server of real devices asked, for the account of one that goes on after it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from cfl_flower.environment.files import write_atomically
from cfl_flower.errors import intact
from cfl_flower.types import ClientId

ASKED = ".asked.json"
"""The file in a run's folder."""


REMEDY = "without it no account of privacy can go on: begin a run in another output_dir"


class Asked:
    """Notes on disk what a round is about to ask for or to release.

    A server that dies goes back to its checkpoint; what had left the devices, or the
    server, since then is in no checkpoint.
    """

    def __init__(self, folder: Path, resume: bool) -> None:
        self._path = folder / ASKED
        self._rows: list[tuple[str, int, str, list[ClientId]]] = []
        if resume and self._path.exists():
            with intact(self._path, REMEDY):
                rows = json.loads(self._path.read_text())
                self._rows = [
                    (str(phase), int(server_round), str(key), [*clients])
                    for phase, server_round, key, clients in rows
                ]
        self._before = self._rows

    def note(
        self, phase: str, server_round: int, clients: Iterable[ClientId], key: str = ""
    ) -> None:
        """Note clients on disk; ``key`` names what is released of them."""
        # The checkpoint of the last round may not be written yet.
        kept = [row for row in self._rows if row[1] >= server_round - 1]
        self._rows = [*kept, (phase, server_round, key, list(clients))]
        write_atomically(self._path, json.dumps(self._rows).encode())

    def before(self, phase: str, server_round: int) -> dict[str, set[ClientId]]:
        """Return the clients that a server which died had noted, by the keys."""
        found: dict[str, set[ClientId]] = {}
        for what, when, key, clients in self._before:
            if (what, when) == (phase, server_round):
                found.setdefault(key, set()).update(clients)
        return found
