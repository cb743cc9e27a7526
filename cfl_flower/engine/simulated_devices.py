"""Simulated devices: how long they take, and in which rounds they are there.

FedScale's model (Lai et al., ICML 2022): a device needs some milliseconds for a forward
pass over a sample, three times as long for a training step's, and has one bandwidth for
both ways. A client keeps its device for the whole run.

All functions are pure. `Devices` are the settings; their `open` gives the device of
each client, their `open_presence` who is there when.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Annotated

import numpy as np
from pydantic import Field

from cfl_flower.seeding import generator
from cfl_flower.settings import Fraction, Positive, require, settings
from cfl_flower.types import PASSES, BoolArray, ClientId, FloatArray, IntArray, Result

Z95 = 1.6449
"""The standard normal's 95th percentile."""


@dataclass(frozen=True)
class Device:
    """What one client computes and communicates with."""

    milliseconds: float
    """Milliseconds of a forward pass over one sample."""
    kbps: float
    """Bandwidth, kbit/s, of downloads and uploads alike."""

    def seconds(self, passes: float, bytes: float) -> float:
        """Return the seconds of computing, then of sending and receiving."""
        return passes * self.milliseconds / 1000 + bytes * 8 / 1000 / self.kbps


@dataclass(frozen=True, eq=False)
class Presence:
    """The rounds in which n clients are there; both arrays have shape (n,)."""

    first: IntArray
    last: IntArray
    """Included."""

    def there(self, number: int) -> BoolArray:
        """Return who is there in a round, shape (n,).

        Examples
        --------
        >>> presence = Presence(first=np.array([1, 2, 5]), last=np.array([9, 3, 6]))
        >>> presence.there(2), presence.there(4)
        (array([ True,  True, False]), array([ True, False, False]))
        """
        return (self.first <= number) & (number <= self.last)


FOREVER = 2**31
"""The last round of a client that does not leave."""

DeviceOf = Callable[[ClientId], Device]
"""The device of each client."""


@settings("devices")
class Devices:
    """The simulated devices, drawn from the run's seed."""

    milliseconds: Positive = 40.0
    """Median over devices, of a forward pass over a sample. FedScale measured one
    mobile network; this is to be the run's own."""
    slowest: Annotated[float, Field(ge=1)] = 10.0
    """Milliseconds at the 95th percentile of the devices over those at the 5th."""
    kbps: Positive = 5000.0
    """Median bandwidth, kbit/s."""
    narrowest: Annotated[float, Field(ge=1)] = 100.0
    """Bandwidth at the 95th percentile over that at the 5th."""
    joins: list[int] = field(default_factory=list)
    """The rounds in which clients join, in groups of the same size."""
    joining: Fraction = 0.25
    """The share of all clients that join, where there are such rounds."""
    leaves: list[int] = field(default_factory=list)
    """The rounds from which on groups of clients are there no more."""
    leaving: Fraction = 0.25
    """The share of all clients that leave, where there are such rounds."""

    def __post_init__(self) -> None:
        for name in ("joins", "leaves"):
            rounds = getattr(self, name)
            later = all(each > 1 for each in rounds)
            require(later, f"devices.{name}", rounds, "rounds from 2 on")
        share = self.joining if self.joins else 0.0
        share += self.leaving if self.leaves else 0.0
        words = "below 1 in all, so that somebody is there in every round"
        require(share < 1, "devices.joining + devices.leaving", share, words)

    def open_presence(self, clients: int, seed: int) -> Presence:
        """Draw who joins and who leaves, or raise `ConfigError`.

        Those who join are not there before, those who leave were there from the start:
        a client does one of both at most.

        Examples
        --------
        >>> devices = Devices(joins=[5], joining=0.2, leaves=[7, 8], leaving=0.4)
        >>> presence = devices.open_presence(10, seed=0)
        >>> [int(presence.there(number).sum()) for number in (1, 4, 5, 7, 8, 9)]
        [8, 8, 10, 8, 6, 6]
        """
        order = generator(seed, "presence").permutation(clients)
        found = Presence(np.ones(clients, np.int64), np.full(clients, FOREVER))
        for number, group in _divide(order, self.joins, self.joining):
            found.first[group] = number
        for number, group in _divide(order[::-1], self.leaves, self.leaving):
            found.last[group] = number - 1
        key = "devices.joining, devices.leaving"
        shares = [self.joining, self.leaving]
        for number in (1, *self.joins, *self.leaves):
            # Shares are rounded to clients, who may be all that there are.
            allowed = f"less with {clients} clients: none is in round {number}"
            require(bool(found.there(number).any()), key, shares, allowed)
        return found

    def open(self, seed: int) -> DeviceOf:
        """Return the device of each client."""
        # Each is asked for in every phase: drawing it takes as long as its task.
        return cache(partial(self.draw, seed))

    def draw(self, seed: int, client: ClientId) -> Device:
        """Draw a client's device: both numbers log-normal, and independent."""
        normal = generator(seed, "device", 0, client).standard_normal(2).tolist()
        widths = [math.log(w) / (2 * Z95) for w in (self.slowest, self.narrowest)]
        slow, wide = (math.exp(z * w) for z, w in zip(normal, widths, strict=True))
        return Device(self.milliseconds * slow, self.kbps * wide)


def _divide(
    order: IntArray, rounds: Sequence[int], share: float
) -> Iterator[tuple[int, IntArray]]:
    """Yield each round, and those of a share of all clients who move in it."""
    moving = order[: round(share * len(order))]
    parts = np.array_split(moving, max(len(rounds), 1))
    yield from zip(sorted(rounds), parts, strict=False)


class VirtualClock:
    """Tells how long devices took since they were last waited for."""

    def __init__(self, device_of: DeviceOf) -> None:
        self.device_of = device_of
        self._seconds: dict[ClientId, float] = {}

    def note(self, results: Iterable[Result], traffic: Mapping[ClientId, int]) -> None:
        """Note how long the devices of some results took, by passes and bytes."""
        for result in results:
            client = result.client
            passes = result.telemetry.get(PASSES, 0)
            device = self.device_of(client)
            sent = traffic[client]
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
