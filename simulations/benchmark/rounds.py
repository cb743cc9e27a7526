"""Rounds of each engine against a plain loop, a long run, and one of a large fleet."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

import numpy as np

from cfl_flower.learning.aggregation import mean_model
from cfl_flower.learning.testing import evaluate
from cfl_flower.learning.training import train
from cfl_flower.seeding import generator
from cfl_flower.server_app import open_stream
from cfl_flower.types import FloatArray
from simulations.benchmark import measure as bench

WARM_UP = 3
"""Rounds that are not measured: workers import torch and load data."""

RUN = """
    strategy=fedavg drift=none model=mclr clients=1000 participants=100
    partition.samples=40 partition.test_samples=13 strategy.local.epochs=5
    strategy.local.batch_size=10 rounds=23
"""
"""1,000 virtual clients with 40 samples each, drawn with replacement from digits."""

ENGINES = {
    "engine=inprocess": 1.3,
    "engine=processes workers=2": 0.8,
    "engine=ray workers=1": 1.5,
    "engine=ray workers=2": 0.9,
}

LONG = """
    strategy=fedavg engine=inprocess drift=none dataset.size=28 clients=1000
    participants=20 partition.samples=40 partition.test_samples=13
    strategy.local.steps=60 system.evaluate_every=10 system.checkpoint_every=10
    rounds=300
"""

LARGE = """
    strategy=fielding drift=none dataset.size=28 model=mlp model.hidden=128
    clients=5000 participants=500 partition.samples=40 partition.test_samples=13
    strategy.local.epochs=1 workers=2 rounds=3
"""


def rows() -> Iterator[bench.Row]:
    """Compare steady rounds with the plain loop's; measure a long run, a large one."""
    for engine, limit in ENGINES.items():
        before = _plain_round()
        run = bench.finish(f"{RUN} {engine}")
        reference = (before + _plain_round()) / 2
        wall = median(row["seconds"] for row in run.rounds[WARM_UP:])
        ours = np.array([wall, np.nan])
        yield bench.compare(f"{engine}, a round", ours, reference, limit)
    (taken,) = bench.measure(lambda: bench.finish(LONG), count=1)
    name = "in process: 300 rounds x 20 clients x 60 steps, 7,850 parameters"
    yield bench.within(name, taken[0], 60, "s", bench.say(taken))
    peak = bench.finish(LARGE).summary["peak_rss_mb"] / 1000
    name = "server, 5,000 clients, 500 participants, 101,770 parameters: peak memory"
    yield bench.within(name, peak, 1.5, "GB")


def _plain_round() -> FloatArray:
    """Return the time of a round of a plain loop of the same FedAvg."""
    config, model, weights, _, _ = bench.set_up(RUN, 0)
    seed = config.seed
    stream = open_stream(config)
    laps = []
    for server_round in range(1, config.rounds + 1):
        began = bench.clock()
        rng = generator(seed, "selection", server_round)
        results = []
        counts = []
        for client in rng.choice(config.clients, config.participants, replace=False):
            x, y = stream.view(int(client), server_round).train()
            batches = generator(seed, "batches", server_round, int(client))
            train(model.load(weights), x, y, config.strategy.local, batches)
            results.append(model.to_vector())
            counts.append(float(len(y)))
        weights = mean_model(results, counts)
        for client in range(config.clients):
            evaluate(model.load(weights), *stream.view(client, server_round).test())
        laps.append(bench.clock() - began)
    return np.asarray(np.median(laps[WARM_UP:], axis=0))
