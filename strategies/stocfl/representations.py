"""What StoCFL's paper leaves open about psi: its check, its memory, and its renewal."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from cfl_flower.client.drift_report import DriftReport
from cfl_flower.clustering.similarity import sketch
from cfl_flower.errors import InvalidResultError
from cfl_flower.types import ClientId, Plan, Result, Task, Vector
from clients.stocfl import RefreshRequest

MEMORY_WARNING = 4e9
"""Bytes of all clients' psi beyond which a run begins with a warning."""

KEPT = 4096
"""Numbers of a psi that are kept where no more are needed: its cosines with others have
a standard error of 0.02 then."""

TOLERANCE = 1e-3
"""By how much the length of a reported psi may differ from 1."""


def read_direction(phase: str, result: Result, width: int) -> Result:
    """Return a result whose report is the psi, of some width, that it carries, if any.

    psi is the array of a query's answer, or among the metrics of a test. Raises
    `InvalidResultError` if it is not a direction of that width.
    """
    if phase == "query" and result.arrays:
        report = DriftReport(result.arrays[0], result.num_examples)
    elif phase == "evaluate" and "representation" in result.metrics:
        report = DriftReport.from_metrics(result.metrics, width, "direction")
    else:
        return result
    check_direction(report.representation)
    return replace(result, report=report)


def check_direction(direction: Vector) -> None:
    """Raise `InvalidResultError` for a psi whose length is neither 0 nor 1."""
    length = float(np.linalg.norm(direction.astype(np.float64)))
    if length != 0 and abs(length - 1) > TOLERANCE:
        detail = f"a direction of length {length:.4g} instead of 1"
        raise InvalidResultError("representation", detail)


def kept_direction(direction: Vector, refresh: str, seed: int) -> Vector:
    """Return what is kept of a psi: all of it, if it will be needed again, or a sketch.

    A cluster has the sum of its members'. To take one away again, when its data have
    changed, needs all of it; a picture of the clients (docs/results/stocfl.md)
    their cosines.
    """
    if refresh == "on_drift" or len(direction) <= KEPT:
        return direction
    return sketch(direction, KEPT, seed)


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
