"""What a client may touch while it does a task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from cfl_flower.client.evaluation import Evaluator
from cfl_flower.client.state import ClientState
from cfl_flower.data.worlds.stream import Stream
from cfl_flower.data.worlds.view import View
from cfl_flower.models import FlatModel
from cfl_flower.types import ClientId, Scalar, Vector


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
    """What the client does if it is malicious."""
    place: int | None = None
    """Its number in the stream of data, if that is not its id."""
    folder: Path | None = None
    """A real device's own data."""
    secret: Callable[[], bytes] | None = None
    """Returns 256 bits from which a real device draws its noise."""
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

    def answer(
        self, parameters: list[Vector], config: dict[str, Any]
    ) -> tuple[list[Vector], int, dict[str, Scalar]]:
        """Answer a query."""

    def fit(
        self, parameters: list[Vector], config: dict[str, Any]
    ) -> tuple[list[Vector], int, dict[str, Scalar]]:
        """Train."""

    def starting_model(self, parameters: list[Vector]) -> Vector:
        """Return the received model that training starts from."""

    def start_loss(self, received: Vector, config: dict[str, Any]) -> dict[str, Scalar]:
        """Return the losses of a received model that the server asks for."""

    def evaluate(
        self, parameters: list[Vector], config: dict[str, Any]
    ) -> tuple[float, int, dict[str, Scalar]]:
        """Test, and report a drift."""
