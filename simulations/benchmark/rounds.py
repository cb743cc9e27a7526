"""A steady round of each engine, against a plain loop of the same rounds."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from statistics import median

from cfl_flower.learning.aggregation import mean_model
from cfl_flower.learning.training import evaluate, train
from cfl_flower.seeding import generator
from cfl_flower.server_app import open_stream
from simulations.benchmark import measure as bench

WARM_UP = 3
"""Rounds that are not measured: workers import torch and load data."""

RUN = """
    strategy=fedavg drift=none model=mclr clients=1000 participants=100
    partition.samples=40 partition.test_samples=13 strategy.local.epochs=5
    strategy.local.batch_size=10 rounds=23
"""
"""1,000 virtual clients with 40 samples each, drawn with replacement from digits."""

ENGINES = {"engine=inprocess": 1.3, "workers=1": 1.5, "workers=2": 0.9}


def rows() -> Iterator[bench.Row]:
    """Compare a steady round of each engine with the plain loop before and after."""
    for engine, limit in ENGINES.items():
        step = partial(bench.finish, f"{RUN} {engine}")
        run, reference = bench.between(_plain_round, step)
        seconds = median(row["seconds"] for row in run.rounds[WARM_UP:])
        ours = bench.Seconds(seconds)
        name = engine if "engine" in engine else f"Ray, {engine}"
        yield bench.compare(f"{name}, a round", ours, reference, limit)


def _plain_round() -> bench.Seconds:
    """Return the time of a round of a plain loop of the same FedAvg."""
    config, model, weights, _, _ = bench.set_up(RUN, 0)
    seed, stream = config.seed, open_stream(config)
    laps, watch = [], bench.Stopwatch()
    for round in range(1, config.rounds + 1):
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
        laps.append(watch.lap())
    return bench.combine(median, laps[WARM_UP:])
