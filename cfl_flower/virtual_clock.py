"""The time of simulated devices: a round takes as long as the slowest waited for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from cfl_flower.devices import DeviceOf
from cfl_flower.fleet import Outcome
from cfl_flower.records import PASSES
from cfl_flower.types import ClientId, FloatArray


class VirtualClock:
    """Tells how long devices took since they were last waited for.

    Parameters
    ----------
    device_of : callable
        The device of a client.
    """

    def __init__(self, device_of: DeviceOf) -> None:
        self.device_of = device_of
        self._seconds: dict[ClientId, float] = {}

    def note(self, outcome: Outcome) -> None:
        """Note how long the devices of some results took, by passes and bytes."""
        for result in outcome.results:
            client, passes = result.client, result.metrics.get(PASSES, 0)
            device, sent = self.device_of(client), outcome.traffic[client]
            self._seconds[client] = device.seconds(float(passes), sent)

    def seconds(self, clients: Sequence[ClientId]) -> FloatArray:
        """Return how long each took; NaN for one of which nothing was noted."""
        return np.array([self._seconds.get(client, np.nan) for client in clients])

    def wait(self, clients: Iterable[ClientId] | None = None) -> float:
        """Return the time until the slowest of some, or of all, is done; begin anew."""
        who = self._seconds if clients is None else clients
        longest = max((self._seconds.get(client, 0.0) for client in who), default=0.0)
        self._seconds = {}
        return longest
