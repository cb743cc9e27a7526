"""Disturbed runs on real SuperNodes, over TLS, and what must have come of them."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from cfl_flower.runs.reading import read_rounds
from cfl_flower.seeding import generator
from simulations.deploy.supernode import node_config
from tests.cfl_flower.client.test_node_config import add_samples
from tests.chaos.device import (
    DEVICE_KINDS,
    ORDERS,
    SERVER_KINDS,
    SITES,
    Device,
    Fault,
    draw_faults,
)
from tests.chaos.ledger import Ledger, family, judge_words, kill_all
from tests.chaos.replay import judge, losses
from tests.simulations.deploy.loopback import CONNECTION, Deployment, wait_for

KINDS = (*DEVICE_KINDS, *SERVER_KINDS)
STRATEGIES = ("fielding", "fedavg")
ROUNDS = 8
QUIET_ROUNDS = 1
"""Rounds without faults, until all devices have joined and are in the checkpoint."""
MOST_DRAWS = 2 * ROUNDS
"""Draws of faults in one run, one for each round that begins; then it may end."""
SETTINGS = (
    *("dataset=folder", "dataset.shape=[1,8,8]", "drift=none"),
    *(f"clients={len(SITES)}", f"participants={len(SITES)}", "strategy.local.epochs=1"),
    # Of a device that is there and whose answer got lost on the way.
    "system.message_timeout=120",
)
RETURN = 300.0
"""Seconds within which all devices join before a run."""
PATIENCE = 3600.0
"""Seconds that a run may take."""


@dataclass
class Machines:
    """A SuperLink and its devices, which one run after another uses."""

    deployment: Deployment
    superlink: subprocess.Popen[bytes]
    devices: dict[str, Device]

    def all_there(self) -> bool:
        """Tend the devices; return whether all have joined."""
        self.tend()
        return all(device.joined for device in self.devices.values())

    def tend(self) -> None:
        """Start devices again that have ended, and let them recover in time."""
        for device in self.devices.values():
            device.tend()

    def server(self, whole: bool) -> list[psutil.Process]:
        """Return the ServerApp's process, or with it all of the SuperLink's machine."""
        found = self.deployment.processes("flwr-serverapp")
        return found + (family(psutil.Process(self.superlink.pid)) if whole else [])


@contextmanager
def start_machines() -> Iterator[Machines]:
    """Start a SuperLink and its devices, below a folder that goes with them."""
    with ExitStack() as stack:
        root = stack.enter_context(tempfile.TemporaryDirectory(prefix="cfl-chaos-"))
        deployment = Deployment(Path(root))
        stack.callback(deployment.end)
        deployment.make_keys(*SITES)
        machines = Machines(deployment, deployment.start_superlink(), {})
        deployment.register(*SITES)
        for name, digits in SITES.items():
            add_samples(deployment.root / name, "first", digits)
            machines.devices[name] = Device(name, deployment)
            stack.callback(machines.devices[name].line.close)
        yield machines


@dataclass
class Trial:
    """A run on devices that is disturbed."""

    strategy: str
    folder: Path
    machines: Machines
    ledger: Ledger
    attempts: int = 0
    faults: list[Fault] = field(default_factory=list)
    """Those that are due later."""
    orders: list[tuple[Fault, int]] = field(default_factory=list)
    """Orders that are not carried out yet, with the round in which they came."""
    strikes: defaultdict[str, list[tuple[int, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def __post_init__(self) -> None:
        self.command = self._start()

    @property
    def settings(self) -> list[str]:
        """The settings of the run, but for its folder."""
        return [f"strategy={self.strategy}", *SETTINGS, f"rounds={ROUNDS}"]

    @property
    def log(self) -> str:
        """The name of the log of the command that is running."""
        return f"{self.folder.name}-{self.attempts}"

    def _start(self) -> subprocess.Popen[bytes]:
        words = ("simulations.deploy.submit", CONNECTION, *self.settings)
        where = f"output_dir={self.folder}"
        return self.machines.deployment.start(self.log, *words, where, "resume=true")

    @property
    def round(self) -> int:
        """The round that is under way."""
        return len(read_rounds(self.folder)) + 1

    @property
    def complete(self) -> bool:
        """Whether the run has ended, and says so."""
        return (self.folder / "summary.json").exists()

    def go_on(self) -> bool:
        """Start the command again if it has ended; return False if the run has."""
        code = self.command.poll()
        if code is None:
            return True
        said = self.machines.deployment.log(self.log).strip().splitlines()
        if problem := judge_words(code, said[-1] if said else ""):
            self.ledger.problems.append(f"{self.strategy}: {problem}")
        if self.complete:
            return False
        self.attempts += 1
        self.ledger.resumes += 1
        self.command = self._start()
        return True

    def tend(self) -> None:
        """Let happen what is due, and notice which orders are done."""
        self.machines.tend()
        now = time.monotonic()
        due = [fault for fault in self.faults if fault.due < now]
        self.faults = [fault for fault in self.faults if fault not in due]
        for fault in due:
            (self._strike_device if fault.device else self._strike_server)(fault)
        for order in [*self.orders]:
            fault, given = order
            if self.machines.devices[fault.device].carried_out(fault.kind):
                self.orders.remove(order)
                self._note(fault, given)

    def _strike_device(self, fault: Fault) -> None:
        if not self.machines.devices[fault.device].suffer(fault):
            self.ledger.note(fault.kind, False)
        elif fault.kind in ORDERS:
            self.orders.append((fault, self.round))
        else:
            self._note(fault, self.round)

    def _note(self, fault: Fault, began: int) -> None:
        self.ledger.note(fault.kind, True)
        self.strikes[fault.device].append((began, self.round))

    def _strike_server(self, fault: Fault) -> None:
        """Kill the ServerApp, or all of its machine, and whoever waits for the run."""
        whole = fault.kind == "kill SuperLink"
        found = self.machines.server(whole)
        self.ledger.note(fault.kind, bool(found))
        with suppress(psutil.NoSuchProcess):
            found += family(psutil.Process(self.command.pid))
        kill_all(found)
        if whole:
            self.machines.superlink = self.machines.deployment.start_superlink()

    def end(self) -> None:
        """Take back what has not happened, and let all devices recover."""
        with suppress(psutil.NoSuchProcess):
            kill_all(family(psutil.Process(self.command.pid)))
        for fault in [*self.faults, *(order for order, _ in self.orders)]:
            self.ledger.note(fault.kind, False)
        for fault, _ in self.orders:
            self.machines.devices[fault.device].withdraw(fault.kind)
        for device in self.machines.devices.values():
            device.recover()

    def problems(self) -> list[str]:
        """Return what is wrong with the run, now that it has ended."""
        if not self.complete:
            return [f"it has not ended after {PATIENCE:g} s"]
        self.ledger.lost += len(losses(self.folder))
        root = self.machines.deployment.root
        elsewhere = root / f"state-{self.folder.name}"
        sites = [node_config(name, root / name, elsewhere / name) for name in SITES]
        return judge(self.folder, self.settings, sites, self.strikes)


def disturb(trial: Trial, seed: int, number: int) -> None:
    """Carry out a run while faults meet it, and judge it."""
    end = time.monotonic() + PATIENCE
    drawn = (0, 0)
    draws = 0
    while trial.go_on() and time.monotonic() < end:
        trial.tend()
        moment = trial.attempts, trial.round
        new = moment != drawn and QUIET_ROUNDS < trial.round <= ROUNDS
        if new and draws < MOST_DRAWS and trial.machines.server(whole=False):
            rng = generator(seed, "chaos/devices", number, draws)
            drawn = moment
            trial.faults += draw_faults(rng, time.monotonic())
            draws += 1
        time.sleep(0.5)
    trial.end()
    trial.ledger.judge(trial.strategy, trial.problems())


def disturb_all(
    strategies: Sequence[str], minutes: float, seed: int, ledger: Ledger
) -> Iterator[str]:
    """Disturb each method's run in turn; yield a line on each that has ended."""
    end = time.monotonic() + 60 * minutes
    number = 0
    with start_machines() as machines:
        while number < len(strategies) or time.monotonic() < end:
            strategy = strategies[number % len(strategies)]
            folder = machines.deployment.root / f"run-{number}"
            wait_for(machines.all_there, "the start of the devices", RETURN)
            disturb(Trial(strategy, folder, machines, ledger), seed, number)
            number += 1
            yield f"run {number}, {strategy}"
