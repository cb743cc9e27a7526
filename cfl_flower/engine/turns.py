"""Whose upload comes next.

Whoever uploads much more often than others waits until these have had their turns.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from typing import Any

from cfl_flower.engine.context import RoundContext
from cfl_flower.engine.uploads_state import AsynchronousState
from cfl_flower.types import ClientId, client_order

FEWEST_TURNS = 2
MOST_TURNS = 5
"""Uploads in a round after which a client waits for others: at least so many, and so
many times those that it would have if all were equally fast."""

REST = 10.0
"""Seconds until a device that failed is asked again."""

TRIES = 3
"""Failures in a row after which nothing more is hoped of a device."""


class Turns:
    """The uploads of each client in a round, and who is to have the next one."""

    def __init__(self, context: RoundContext) -> None:
        self._context = context
        self._failures = Counter[ClientId]()
        self._until: dict[ClientId, float] = {}
        self.taken = Counter[ClientId]()
        """The uploads of each in this round, refused ones and failures included."""

    def note(self, client: ClientId, valid: bool) -> None:
        """Note that an upload has come, or has failed."""
        self.taken[client] += 1
        if valid:
            del self._failures[client]
            self._until.pop(client, None)
            return
        self._failures[client] += 1
        self._until[client] = time.monotonic() + REST

    def resting(self) -> set[ClientId]:
        """Return the clients that are not to be asked now."""
        now = time.monotonic()
        return {client for client, until in self._until.items() if now < until}

    def hopeless(self) -> bool:
        """Return whether every client that is there fails again and again."""
        there = self._context.fleet.reachable(self._context.state.clients)
        failed = [self._failures[client] >= TRIES for client in there]
        return bool(failed) and all(failed)

    def waiting(
        self, state: AsynchronousState, busy: set[ClientId], left: int
    ) -> list[ClientId]:
        """Return whose task is to be sent, the most urgent first.

        ``busy`` clients have a task under way. In a simulation only those are sent that
        can still be taken in before the run ends, with ``left`` uploads.
        """
        order = [state.clients[row] for row in self.by_urgency(state)]
        away = busy | state.answers.keys()
        if self._context.fleet.simulated:
            order = order[:left]
        else:
            resting = self.resting()
            able = set(self._context.fleet.reachable(state.clients)) - resting
            least = min(map(self._full_turns, able), default=0)
            away |= resting
            away |= {each for each in able if self._full_turns(each) > least}
        return [client for client in order if client not in away]

    def by_urgency(self, state: AsynchronousState) -> list[int]:
        """Return the rows of clients: who had fewer turns, and is due first."""

        def urgency(row: int) -> tuple[int, float, Any]:
            client = state.clients[row]
            due: float = state.due[row].item()
            return self._full_turns(client), due, client_order(client)

        return sorted(range(len(state.clients)), key=urgency)

    def _full_turns(self, client: ClientId) -> int:
        """Return how often a client has used up its turns in this round."""
        context = self._context
        fair = context.config.participants / len(context.state.clients)
        return self.taken[client] // max(FEWEST_TURNS, math.ceil(MOST_TURNS * fair))
