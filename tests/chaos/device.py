"""A device under a service manager, and the faults that may meet it.

It is a SuperNode that calls the SuperLink over a line of its own, and is started again
whenever it has ended.
"""

from __future__ import annotations

import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import psutil

from tests.chaos.echo import EARLIER, TWICE, prepare
from tests.chaos.ledger import family, kill_all
from tests.chaos.line import Line
from tests.simulations.deploy.loopback import Deployment

SITES = {f"site-{n}": range(5 * (n % 2), 5 * (n % 2) + 5) for n in range(3)}
"""The devices, and the digits that each has samples of."""
ORDERS = {"answer twice": TWICE, "answer earlier": EARLIER}
DEVICE_KINDS = ("kill device", "freeze device", "cut off", *ORDERS)
SERVER_KINDS = ("kill server", "kill SuperLink")
DEVICE_ODDS = 0.8
SERVER_ODDS = 0.7
"""Of a fault of each device, and of the server, in a round."""
LATER = 15.0
"""Seconds at most from the begin of a round to a fault."""
LONGEST = 30.0
"""Seconds at most that a device is stopped or cut off: it may be missed, or not."""
RESTART = 5.0
"""Seconds from the end of a device to its next start, as in the systemd unit."""


@dataclass(frozen=True)
class Fault:
    """What is to happen, when, and for how long; to the server if to no device."""

    kind: str
    due: float
    seconds: float = 0.0
    device: str = ""


def draw_faults(rng: np.random.Generator, now: float) -> list[Fault]:
    """Draw the faults of a round that begins now, in seconds of some clock."""
    drawn = []
    for device, kinds, odds in (
        *((name, DEVICE_KINDS, DEVICE_ODDS) for name in SITES),
        ("", SERVER_KINDS, SERVER_ODDS),
    ):
        happens = rng.random() < odds
        kind = str(rng.choice(kinds))
        due = now + rng.uniform(1, LATER)
        seconds = rng.uniform(1, LONGEST)
        if happens:
            drawn.append(Fault(kind, due, seconds, device))
    return drawn


class Device:
    """A SuperNode, its line, and what is wrong with it at the moment."""

    def __init__(self, name: str, deployment: Deployment) -> None:
        self.name = name
        self.line = Line(deployment.port)
        self._deployment = deployment
        self._orders = deployment.root / f"orders-{name}"
        self._process = self._start()
        self._ended = 0.0
        self._frozen: list[psutil.Process] = []
        self._recovers = 0.0

    def _start(self) -> subprocess.Popen[bytes]:
        self._joined = self._deployment.joined(self.name)
        first = prepare(self._orders)
        return self._deployment.start_device(self.name, first, self.line.port)

    @property
    def joined(self) -> bool:
        """Whether it was let in since its last start."""
        return self._deployment.joined(self.name) > self._joined

    def suffer(self, fault: Fault) -> bool:
        """Let a fault happen; return False if one has not passed yet."""
        if self._process.poll() is not None or self._recovers:
            return False
        if fault.kind in ORDERS:
            (self._orders / ORDERS[fault.kind]).touch()
            return True
        processes = family(psutil.Process(self._process.pid))
        if fault.kind == "kill device":
            kill_all(processes)
            return True
        self._recovers = time.monotonic() + fault.seconds
        if fault.kind == "cut off":
            self.line.cut()
            return True
        self._frozen = processes
        for each in processes:
            with suppress(psutil.NoSuchProcess):
                each.suspend()
        return True

    def carried_out(self, kind: str) -> bool:
        """Return whether an order is done with."""
        return not (self._orders / ORDERS[kind]).exists()

    def withdraw(self, kind: str) -> None:
        """Take an order back."""
        (self._orders / ORDERS[kind]).unlink(missing_ok=True)

    def tend(self) -> None:
        """Start it again if it has ended, and let it recover when it is time."""
        now = time.monotonic()
        if self._recovers and now > self._recovers:
            self.recover()
        if self._process.poll() is None:
            self._ended = now
        elif now > self._ended + RESTART:
            self._process = self._start()

    def recover(self) -> None:
        """End what does not end by itself."""
        self._recovers = 0.0
        self.line.mend()
        for each in self._frozen:
            with suppress(psutil.NoSuchProcess):
                each.resume()
        self._frozen = []
