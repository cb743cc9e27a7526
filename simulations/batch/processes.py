"""Runs in processes of their own, which one process forks that has imported all parts.

torch and the classes of all groups take two seconds, which many small runs would spend
again and again. A run may still die in any way, and takes no other with it.

    python -m simulations.batch.processes 2

carries out two units at a time. It reads them from stdin, a JSON list of `Unit`, and
tells on stdout, a JSON list a line, of each its number when it begins, and its number
and exit code when it has ended.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from queue import Empty, SimpleQueue
from threading import Thread
from typing import NamedTuple, TextIO

from cfl_flower.config.overrides import split
from cfl_flower.environment import plugins
from cfl_flower.errors import InterruptedRunError
from cfl_flower.runs.console import VERBOSITY, Verbosity
from simulations.engines.superlink import PROJECT, die_with_parent, run_on_superlink
from simulations.run import run
from simulations.shell.terminal import command

PARENT = "CFL_FLOWER_PARENT"
"""Environment variable: the process with which a process of ours ends."""

PARTS = ("cfl_flower.server_app", "simulations.engines.inprocess", "sklearn.cluster")
"""What every run in process imports."""

PATIENCE = 30.0
"""Seconds in which processes end that were interrupted."""


class Unit(NamedTuple):
    """The runs of one process."""

    overrides: str
    """Of each run a line; several share a SuperLink."""
    log: str
    """The file that gets what the process says."""
    superlink: tuple[int, float] | None = None
    """Workers and GPUs of each on a SuperLink of its own; None for one run in the
    process itself."""


class Event(NamedTuple):
    """A process has begun or ended."""

    unit: int
    exit_code: int | None = None
    """None if it has begun."""


class Processes:
    """The processes of several units of runs."""

    def __init__(self, process: subprocess.Popen[str], count: int) -> None:
        self._process = process
        self._events = SimpleQueue[Event]()
        assert process.stdout is not None
        Thread(target=self._read, args=(process.stdout, count), daemon=True).start()

    def events(self, patience: float) -> list[Event]:
        """Return what has happened, after at most so many seconds if nothing has."""
        found = []
        try:
            found.append(self._events.get(timeout=patience))
            while True:
                found.append(self._events.get_nowait())
        except Empty:
            return found

    def _read(self, lines: TextIO, count: int) -> None:
        left = set(range(count))
        for line in lines:
            event = Event(*json.loads(line))
            if event.exit_code is not None:
                left.discard(event.unit)
            self._events.put(event)
        # They end with the process that forked them.
        code = self._process.wait()
        for unit in sorted(left):
            self._events.put(Event(unit, code))


@contextmanager
def start(
    units: Sequence[Unit], at_a_time: int, verbosity: Verbosity
) -> Iterator[Processes]:
    """Start the processes of units of runs, at most so many at a time."""
    # The log of a quiet comparison still tells the rounds.
    loud = Verbosity.VERBOSE if verbosity is Verbosity.VERBOSE else Verbosity.NORMAL
    environment = {
        **os.environ,
        **plugins.environment(),
        PARENT: str(os.getpid()),
        VERBOSITY: loud,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "simulations.batch.processes", str(at_a_time)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=PROJECT,
        env=environment,
    )
    try:
        assert process.stdin is not None
        with process.stdin:
            json.dump(units, process.stdin)
        yield Processes(process, len(units))
    finally:
        # An interruption of ours reaches them, too.
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def carry_out(unit: Unit) -> None:
    """Carry out the runs of a unit."""
    if unit.superlink:
        run_on_superlink(unit.overrides, *unit.superlink)
        return
    from cfl_flower.config.compose import compose_config

    run(compose_config(split(unit.overrides)))


def enter(unit: Unit, parent: int) -> None:
    """Carry out a unit in this process, and leave it with the exit code."""
    die_with_parent(parent)
    log = os.open(unit.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(log, stream.fileno())
    sys.exit(command(lambda _: carry_out(unit))([]))


def fork(units: Sequence[Unit], at_a_time: int) -> Iterator[Event]:
    """Carry out units, each in a process; yield what happens."""
    # Elsewhere libraries start threads when they are imported, which do not survive it.
    linux = sys.platform == "linux"
    get = multiprocessing.get_context
    context = get("fork") if linux else get("spawn")
    waiting = deque(enumerate(units))
    running = list[tuple[int, BaseProcess]]()
    while waiting or running:
        while waiting and len(running) < at_a_time:
            number, unit = waiting.popleft()
            process = context.Process(target=enter, args=(unit, os.getpid()))
            process.start()
            running.append((number, process))
            yield Event(number)
        wait([process.sentinel for _, process in running])
        for number, ended in [each for each in running if not each[1].is_alive()]:
            running.remove((number, ended))
            yield Event(number, ended.exitcode)


def main(arguments: Sequence[str]) -> int:
    """Carry out the units that stdin names, and return 0."""
    die_with_parent(int(os.environ[PARENT]))
    units = [Unit(*each) for each in json.load(sys.stdin)]
    for name in PARTS if any(not unit.superlink for unit in units) else ():
        importlib.import_module(name)
    try:
        for event in fork(units, int(arguments[0])):
            print(json.dumps(event), flush=True)
    except KeyboardInterrupt:
        # The command that started this one got it, too, and tells how to go on.
        return InterruptedRunError.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
