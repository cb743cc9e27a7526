"""Which engine carries a run, and with how many workers, where it is left to us."""

from __future__ import annotations

import os

from cfl_flower.environment.machine import usable_cores
from cfl_flower.run_config import RunConfig

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""Environment variable: the GPUs that a process sees."""

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
    """Return how many workers a run has.

    One for each core that it may use, or for each share of a GPU.
    """
    if isinstance(config.workers, int):
        return config.workers
    if not config.gpus_per_worker:
        return usable_cores()
    return max(1, int(len(visible_gpus()) / config.gpus_per_worker))


def visible_gpus() -> list[str]:
    """Return the GPUs that this process sees, by what CUDA calls them."""
    import torch  # noqa: PLC0415 - slow to import

    named = os.environ.get(VISIBLE)
    if named is None:
        return [str(number) for number in range(torch.cuda.device_count())]
    return named.split(",") if named else []


def gpu_of(worker: int, share: float) -> str | None:
    """Return the GPU of a worker, counted from 0, each of which has a share of one.

    None if there is no share: the worker sees what this process does.
    """
    if not share:
        return None
    gpus = visible_gpus()
    return gpus[int(worker * share) % len(gpus)] if gpus else ""
