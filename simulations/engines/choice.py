"""Which engine carries a run, and with how many workers, where it is left to us."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cfl_flower.environment.machine import usable_cores

if TYPE_CHECKING:
    from cfl_flower.config.compose import RunConfig

AUTO = "auto"
"""The value of `engine` and of `workers` that leaves them to this module."""


def engine_of(config: RunConfig) -> str:
    """Return the engine of a run.

    Worker processes of this machine, unless there is a Ray cluster, or GPUs are shared.
    """
    if config.engine != AUTO:
        return config.engine
    elsewhere = config.gpus_per_worker > 0 or "RAY_ADDRESS" in os.environ
    return "ray" if elsewhere else "processes"


def workers_of(config: RunConfig) -> int:
    """Return how many workers a run has: one for each core that it may use."""
    return config.workers if isinstance(config.workers, int) else usable_cores()
