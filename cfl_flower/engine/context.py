"""What is known of a run and of the round that is under way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cfl_flower.communication.fleet import Fleet
from cfl_flower.data.worlds.timeline import Timeline
from cfl_flower.engine.simulated_devices import VirtualClock
from cfl_flower.run_config import RunConfig
from cfl_flower.runs.record import RoundRecord
from cfl_flower.state import ClusteredState
from cfl_flower.types import BoolArray, ClientId, Plan


@dataclass(eq=False)
class RoundContext:
    """A run's configuration, clients and method, and what its round has come to."""

    method: Any
    config: RunConfig
    fleet: Fleet
    timeline: Timeline | None
    """The true concept of every client, where the data are simulated."""
    done: int = 0
    """Rounds of an earlier process that this one went on from."""

    def __post_init__(self) -> None:
        self.clock = VirtualClock(self.config.devices.open(self.config.seed))
        self.begin(0)

    def begin(self, number: int) -> None:
        """Begin a round."""
        self.record = RoundRecord(number)
        if self.fleet.simulated:
            self.record.virtual_seconds = 0.0
        self.phase = ""
        """``query``, ``train`` or ``evaluate``."""
        self.sent = Plan([])
        """The plan of the phase, as all stages left it."""

    @property
    def number(self) -> int:
        """The number of the round."""
        return self.record.round

    @property
    def state(self) -> ClusteredState:
        """The method's state."""
        return self.method.state

    def there(self, clients: Sequence[ClientId]) -> BoolArray:
        """Return which clients have not left, shape (n,): of devices, all.

        Who has left keeps a cluster, whatever its data are by now.
        """
        if self.timeline is None:
            return np.ones(len(clients), bool)
        config = self.config
        presence = config.devices.open_presence(config.clients, config.seed)
        return presence.there(self.number)[np.array(clients, np.int64)]

    @property
    def keep_from(self) -> int:
        """The round of a checkpoint on disk: what clients remembered then must stay.

        That of the round before is only written while this one's messages are answered,
        or never, if the server dies.
        """
        every: int = self.config.system.checkpoint_every
        return max(self.done, (self.number - 2) // every * every)

    @property
    def shares_memory(self) -> bool:
        """Whether server and clients are one process, whose clients train singly.

        On a GPU they train in cohorts, the larger the better.
        """
        return self.config.engine == "inprocess" and not self.config.gpus_per_worker

    def advance_clock(self, clients: list[ClientId] | None = None) -> None:
        """Let virtual time pass until the slowest of some, or of all, is done."""
        longest = self.clock.wait(clients)
        if self.record.virtual_seconds is not None:
            self.record.virtual_seconds += longest
