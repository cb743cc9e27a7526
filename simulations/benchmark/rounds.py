"""A steady round of each engine, against a plain loop of the same rounds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median

import torch

from cfl_flower.config.compose import RunConfig, compose_config
from cfl_flower.data.stream import Stream
from cfl_flower.learning.aggregation import mean_model
from cfl_flower.learning.training import evaluate, train
from cfl_flower.models import FlatModel, initial_vector
from cfl_flower.seeding import generator
from simulations.benchmark.measure import Row, finish

WARM_UP = 3
"""Rounds that are not measured: workers import torch and load data."""

ROUND = [
    "strategy=fedavg",
    "drift=none",
    "model=mclr",
    "clients=1000",
    "participants=100",
    "partition.samples=40",
    "partition.test_samples=13",
    "strategy.local.epochs=5",
    "strategy.local.batch_size=10",
    "rounds=23",
]
"""1,000 virtual clients with 40 samples each, drawn with replacement from digits."""


def plain_rounds(config: RunConfig) -> Iterator[float]:
    """Yield the seconds of each round of a plain loop of the same FedAvg."""
    torch.set_num_threads(1)
    dataset, seed = config.dataset, config.seed
    stream = Stream(
        dataset, config.partition, config.drift, config.clients, seed, config.rounds
    )
    model = FlatModel(config.model.build(dataset.shape, dataset.classes))
    weights = initial_vector(config.model, dataset.shape, dataset.classes, seed)
    for round in range(1, config.rounds + 1):
        start = time.perf_counter()
        rng = generator(seed, "selection", round)
        results, counts = [], []
        for client in rng.choice(config.clients, config.participants, replace=False):
            x, y = stream.view(int(client), round).train()
            batches = generator(seed, "batches", round, int(client))
            train(model.load(weights), x, y, config.strategy.local, batches)
            results.append(model.to_vector())
            counts.append(float(len(y)))
        weights = mean_model(results, counts)
        for client in range(config.clients):
            evaluate(model.load(weights), *stream.view(client, round).test())
        yield time.perf_counter() - start


def rows() -> Iterator[Row]:
    """Compare a steady round of each engine with the plain loop before and after."""
    references = [_plain_round()]
    for name, options, limit in (
        ("engine=inprocess", ["engine=inprocess"], 1.3),
        ("Ray, workers=1", ["workers=1"], 1.5),
        ("Ray, workers=2", ["workers=2"], 0.9),
    ):
        done = finish([*ROUND, *options])
        seconds = median(row["seconds"] for row in done.rounds[WARM_UP:])
        references.append(_plain_round())
        # A shared machine is not equally fast all the time.
        ratio = 2 * seconds / (references[-2] + references[-1])
        figure = f"{ratio:.2f} x  ({seconds:.3f} s)"
        yield Row(f"{name}, a round", figure, f"{limit} x", ratio <= limit)
    figure = ", ".join(f"{reference:.3f}" for reference in references)
    yield Row("plain loop, a round, before and after each", f"{figure} s", "-", True)


def _plain_round() -> float:
    return median(list(plain_rounds(compose_config(ROUND)))[WARM_UP:])
