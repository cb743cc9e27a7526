"""Runs in processes of their own, which one process forks that has imported all parts.

torch and the classes of all groups take two seconds, which many small runs would spend
again and again. A run may still die in any way, and takes no other with it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing import forkserver, resource_tracker
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Thread
from typing import Any

from cfl_flower.config.overrides import split
from cfl_flower.environment import plugins
from cfl_flower.environment.machine import (
    PATH,
    SAFE_PATH,
    as_imported_here,
    end_with_parent,
)
from cfl_flower.runs.console import VERBOSITY, Verbosity
from simulations.run import run
from simulations.shell.terminal import command

PARTS = ["cfl_flower.server_app", "simulations.engines.processes", "sklearn.cluster"]
"""Modules that runs import, or may."""

FORKS = sys.platform == "linux"
"""Whether runs are forked. Elsewhere imports start threads, which survive no fork."""

PATIENCE = 30.0
"""Seconds in which processes end that were interrupted."""


def start(
    overrides: str, log: Path, verbosity: Verbosity, workers: int = 0
) -> BaseProcess:
    """Start a process for a run, whose words go to a file.

    The run has some workers, or with 0 as its settings say.
    """
    # The log of a quiet comparison still tells the rounds.
    loud = Verbosity.VERBOSE if verbosity is Verbosity.VERBOSE else Verbosity.NORMAL
    # The process that forks has the environment in which it was started.
    variables = {**os.environ, **plugins.environment(), VERBOSITY: loud}
    arguments = (overrides, log, workers, variables)
    context: Any = multiprocessing.get_context("forkserver" if FORKS else "spawn")
    process: BaseProcess = context.Process(target=enter, args=arguments)
    with as_imported_here():
        process.start()
    return process


def prepare() -> None:
    """Start the process that forks, which imports all parts while others go on."""
    if not FORKS:
        return
    forkserver.set_forkserver_preload(PARTS)
    # Which `forkserver` starts, too, and does not leave the signals as they are.
    resource_tracker.ensure_running()
    # Ctrl-C in the middle of its imports would be a traceback; `enter` takes it again.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with as_imported_here():
            forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end(processes: Sequence[BaseProcess]) -> None:
    """Wait for processes that were interrupted, and kill those that go on."""
    for process in processes:
        process.join(PATIENCE)
        process.kill()


def enter(overrides: str, log: Path, workers: int, variables: dict[str, str]) -> None:
    """Carry out a run in this process, and leave it with the exit code."""
    if FORKS:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    Thread(target=end_with_parent, daemon=True).start()
    for name in (SAFE_PATH, PATH):
        os.environ.pop(name, None)
    os.environ.update(variables)
    with log.open("w") as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())

    @command
    def carry_out(arguments: Sequence[str]) -> None:
        from cfl_flower.config.compose import compose_config

        config = compose_config(arguments)
        # The saved request stays as it was given.
        run(replace(config, workers=workers) if workers else config)

    sys.exit(carry_out(split(overrides)))
