"""A method without rounds: its steps, and what its file begins with."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from cfl_flower.engine.declarations import UNAVERAGED, Supports
from cfl_flower.engine.method import ClusteredStrategy
from cfl_flower.engine.uploads import Uploads
from cfl_flower.engine.uploads_state import AsynchronousSettings as AsynchronousSettings
from cfl_flower.engine.uploads_state import AsynchronousState as AsynchronousState
from cfl_flower.engine.uploads_state import Exchange as Exchange
from cfl_flower.runs.record import RunLines
from cfl_flower.types import Json, Plan, Result, Task, Vector


class AsynchronousStrategy(ClusteredStrategy):
    """A method without rounds: what a paper decides of every upload."""

    Settings = AsynchronousSettings
    State = AsynchronousState
    exchange: ClassVar[Exchange] = Exchange()
    supports = Supports(server_optimizer=False, selection=False, unused=UNAVERAGED)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, engine=Uploads, **options)

    @abstractmethod
    def reply(self, row: int, result: Result) -> list[Vector]:
        """Take in an upload; return what its client receives.

        Raises `InvalidResultError` before anything is changed.
        """

    def personal(self, row: int, sent: list[Vector]) -> Vector:
        """Return the model that a client predicts with, of what it received."""
        return sent[0]

    def describe_upload(self, row: int, result: Result) -> dict[str, Json]:
        """Return what is noted of an upload that was taken in."""
        return {}

    def describe_round(self, noted: RunLines) -> None:
        """Note what the uploads of a round say together."""

    def plan_evaluate(self, server_round: int, test: bool) -> Plan:
        """Let every simulated client test the model that it holds.

        Real devices test theirs when they upload next.
        """
        state = self.state
        if not (test and self.engine.fleet.simulated):
            return Plan([])
        # The data that were trained on for the last upload, or of this round.
        own = np.full_like(state.cycles, server_round)
        if self.settings.stream == "cycles":
            own = np.maximum(state.cycles - 1, 1)
        tasks = [
            Task(client, (row,), round=int(own[row]))
            for row, client in enumerate(state.clients)
        ]
        return Plan(tasks, state.served)
