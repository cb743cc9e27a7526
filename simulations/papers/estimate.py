"""How long a run will take one core of this machine, estimated from a few real steps.

Counted are the training of the participants and the tests of one model, as in FedAvg;
a method that trains two models, or tests several, takes a multiple.
"""

from __future__ import annotations

from dataclasses import replace
from timeit import repeat
from typing import NamedTuple

import numpy as np
import torch

from cfl_flower.config.compose import RunConfig
from cfl_flower.learning.training import BLOCK, LocalTraining, evaluate, train
from cfl_flower.models import FlatModel
from cfl_flower.seeding import generator
from cfl_flower.server_app import open_stream

COUNTED_CLIENTS = 50
"""Clients whose samples are counted; the others are taken to be like them."""

STEPS = 4
"""Training steps that are timed at once."""


class Work(NamedTuple):
    """The work of a round of FedAvg: all participants' steps, all tested samples."""

    steps: float
    batch: int
    """Mean samples of a step: a client may have fewer than a batch."""
    tests: float


def estimate_seconds(config: RunConfig) -> float:
    """Return the seconds that a run of one model takes one core.

    Without its data, this is a `ConfigError`.
    """
    work = count_work(config)
    of_step, of_test = time_step(config, work.batch)
    tested = config.rounds // config.system.evaluate_every
    return config.rounds * work.steps * of_step + tested * work.tests * of_test


def count_work(config: RunConfig) -> Work:
    """Return the work of a round in which all clients are mean ones."""
    stream = open_stream(config)
    local = config.strategy.local
    count = min(config.clients, COUNTED_CLIENTS)
    some = generator(config.seed, "estimate").choice(config.clients, count, False)
    views = [stream.view(client, 1) for client in some.tolist()]
    sizes = [len(view.labels) for view in views]
    steps = sum(map(local.count_steps, sizes))
    trained = sum(map(local.count_samples, sizes))
    tests = float(np.mean([len(view.test_labels) for view in views]))
    # Samples that many clients hold are tested once.
    most = len(views[0].test_pool.labels)
    return Work(
        steps=config.participants * steps / count,
        batch=max(round(trained / max(steps, 1)), 1),
        tests=min(config.clients * tests, most),
    )


def time_step(config: RunConfig, batch: int) -> tuple[float, float]:
    """Return the seconds of a training step, and of the test of a sample, on noise."""
    torch.set_num_threads(1)
    shape = config.dataset.shape
    classes = config.dataset.classes
    local: LocalTraining = replace(config.strategy.local, steps=STEPS, batch_size=batch)
    model = FlatModel(config.model.build(shape, classes))
    count = max(batch * STEPS, BLOCK)
    x = torch.rand(count, *shape)
    y = torch.arange(count) % classes
    rng = np.random.default_rng(0)
    # Twice: at first, caches are cold.
    steps = repeat(lambda: train(model, x, y, local, rng), number=1, repeat=2)
    tests = repeat(lambda: evaluate(model, x[:BLOCK], y[:BLOCK]), number=1, repeat=2)
    return min(steps) / STEPS, min(tests) / BLOCK
