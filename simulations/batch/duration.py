"""About how long runs will take here, before the first of them begins."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from cfl_flower.run_config import RunConfig
from simulations.batch.jobs import Job

STEPS = 5
"""Steps of training of which the fastest is the measure."""

OTHERS = 2.0
"""Ratio of a run's time to that of its training, since it also tests and averages."""

START = 1.0
"""Seconds in which a run begins."""


def seconds_of(jobs: Sequence[Job], at_a_time: int) -> float:
    """Return about how many seconds some runs take, so many of them at a time.

    Of what all methods do, plain local training; some do a multiple of it.
    """
    measured: dict[str, float] = {}
    total = 0.0
    for job in jobs:
        config = job.config
        key = repr((config.model, config.dataset, config.strategy.local.batch_size))
        if key not in measured:
            measured[key] = step_of(config)
        left = config.rounds - len(job.rounds())
        total += START + OTHERS * left * steps_of(config) * measured[key]
    return total / min(at_a_time, max(1, len(jobs)))


def steps_of(config: RunConfig) -> float:
    """Return the steps of local training in a round, with as many samples for each."""
    local = config.strategy.local
    train, _ = config.dataset.load(config.data_dir)
    samples = config.partition.samples or len(train.labels) / config.clients
    steps = local.steps or local.epochs * math.ceil(samples / local.batch_size)
    return float(config.participants * steps)


def step_of(config: RunConfig) -> float:
    """Return the seconds of a step of training on one core, measured."""
    import torch

    from cfl_flower.models import model_of
    from cfl_flower.seeding import one_torch_thread

    network = model_of(config).module.train()
    x = torch.zeros(max(2, config.strategy.local.batch_size), *config.dataset.shape)
    seconds = []
    with one_torch_thread():
        for _ in range(STEPS):
            start = time.perf_counter()
            network(x).sum().backward()
            seconds.append(time.perf_counter() - start)
    return min(seconds)
