"""A real SuperLink and real SuperNodes on the loopback, with TLS and keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulations.deploy.loopback import Deployment


@pytest.fixture
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployment]:
    """A running SuperLink whose authority and server key exist."""
    found = Deployment(tmp_path)
    monkeypatch.setenv("FLWR_HOME", found.variables["FLWR_HOME"])
    found.make_keys()
    try:
        found.start_superlink()
        yield found
    finally:
        found.end()
