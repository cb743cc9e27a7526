"""Checks, memory and renewal of psi, which StoCFL's paper leaves open."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from cfl_flower.errors import InvalidResultError
from cfl_flower.types import ClientId, Plan, Task, Vector
from clients.stocfl import RefreshRequest

MEMORY_WARNING = 4e9
"""Bytes of all clients' psi beyond which a run begins with a warning."""

TOLERANCE = 1e-3
"""By how much the length of a reported psi may differ from 1."""


def check_direction(direction: Vector) -> None:
    """Raise `InvalidResultError` for a psi whose length is neither 0 nor 1."""
    length = float(np.linalg.norm(direction.astype(np.float64)))
    if length != 0 and abs(length - 1) > TOLERANCE:
        detail = f"a direction of length {length:.4g} instead of 1"
        raise InvalidResultError("representation", detail)


def ask_for_changes(tests: Plan, reported: Mapping[ClientId, int]) -> Plan:
    """Let known clients report psi again with the test, if their data changed.

    ``tests`` may have no tasks; ``reported`` is the round in which each psi was taken.
    """
    tasks = [
        replace(task, config=RefreshRequest(reported[task.client]).to_config())
        if task.client in reported
        else task
        for task in tests.tasks or map(Task, reported)
    ]
    return replace(tests, tasks=tasks)


def warn_of_memory(clients: int, sketch: int, length: int, refresh: str) -> None:
    """Warn if psi of all clients, or clusters, can take much of the server's memory."""
    size = 4 * clients * (sketch or length)
    if size <= MEMORY_WARNING:
        return
    what = f"the directions of {clients} clients in {size / 1e9:.0f} GB"
    if refresh == "never":
        what = f"a direction of each cluster, up to {size / 1e9:.0f} GB (no two alike)"
    warnings.warn(
        f"strategy.sketch={sketch} keeps {what} of the server's memory; "
        f"strategy.sketch=1024 takes {4096 * clients / 1e9:.2g} GB",
        stacklevel=1,
    )
