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

    Where it is left to us: Ray if there is a cluster, else worker processes of this
    machine. A single worker with a GPU is this process.
    """
    if config.engine != AUTO:
        return config.engine
    if "RAY_ADDRESS" in os.environ:
        return "ray"
    alone = gpus_of(config) and workers_of(config) == 1
    return "inprocess" if alone else "processes"


def gpus_of(config: RunConfig) -> float:
    """Return the GPUs that a worker has."""
    gpus = config.gpus_per_worker
    return 1.0 if isinstance(gpus, str) else gpus


def workers_of(config: RunConfig) -> int:
    """Return how many workers a run has.

    One for each core that it may use, or for each share of a GPU.
    """
    if isinstance(config.workers, int):
        return config.workers
    gpus = gpus_of(config)
    return max(1, int(len(visible_gpus()) / gpus)) if gpus else usable_cores()


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
