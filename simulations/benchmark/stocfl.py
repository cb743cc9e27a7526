"""The server of StoCFL's largest setting, on Ray."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from statistics import mean, median

import torch
from torch import Tensor

from cfl_flower.config.compose import compose_config
from cfl_flower.learning.training import full_gradient, train
from cfl_flower.models import FlatModel, initial_vector
from cfl_flower.seeding import generator
from cfl_flower.types import Vector
from simulations.benchmark.measure import Row, finish, on_two_workers, times

STOCFL = [
    "strategy=stocfl",
    "strategy.sketch=1024",
    "drift=none",
    "dataset.size=28",
    "model=mlp",
    "model.hidden=2048",
    "clients=4800",
    "participants=480",
    "partition.samples=50",
    "partition.test_samples=8",
    "strategy.local.epochs=5",
    "strategy.local.batch_size=50",
    "system.evaluate_every=99",
    "system.checkpoint_every=99",
    "workers=2",
    "rounds=5",
]
"""StoCFL's own largest setting, on digits: 1,628,170 parameters."""

MET = [*STOCFL, "clients=480"]
"""As many participants in a round, all of whom are known from the first one on."""


def rows() -> Iterator[Row]:
    """Take memory and time of the server of StoCFL's largest setting, on Ray.

    Local work is the training of both models. Early rounds of 4,800 clients are first
    contacts for most, who work out the gradient psi as well: there it is counted.
    """
    before = on_two_workers(_measure_training), on_two_workers(_measure_gradient)
    done, steady = finish(STOCFL), finish(MET)
    after = on_two_workers(_measure_training), on_two_workers(_measure_gradient)
    training, gradient = (mean(pair) for pair in zip(before, after, strict=True))
    peak = done.summary["peak_rss_mb"] / 1000
    name = "StoCFL, 4,800 clients, 480 in a round"
    yield Row(f"{name}: memory of the server", f"{peak:.2f} GB", "4 GB", peak <= 4)
    for kind, run in (("rounds of first contacts", done), ("steady rounds", steady)):
        # The first round starts the workers, the last one tests.
        rounds = list(pairwise(run.rounds))[:-1]
        met = [row["known"] - previous["known"] for previous, row in rounds]
        work = [(480 * training + count * gradient) / 2 for count in met]
        seconds = [row["seconds"] for _, row in rounds]
        ratio = median(taken / own for taken, own in zip(seconds, work, strict=True))
        figure = f"{ratio:.2f} x  ({median(seconds):.1f} s)"
        what = f"StoCFL, 480 in a round, {kind}: against local work on 2 workers"
        yield Row(what, figure, "1.3 x", ratio <= 1.3)
    shared = [str(row["found"]) for row in done.rounds]
    yield Row(f"{name}: clusters found", ", ".join(shared), "-", True)


def _measure_training() -> float:
    """Return the seconds in which a client trains both models."""
    model, start, x, y = _make_client()
    local = compose_config(STOCFL).strategy.local
    anchor = torch.from_numpy(start.copy())

    def both() -> None:
        rng = generator(0, "batches")
        train(model.load(start), x, y, replace(local, mu=0.05), rng, anchor=anchor)
        model.to_vector()
        train(model.load(start), x, y, local, rng)
        model.to_vector()

    # Ten seconds: the two workers start one after the other, and must share caches.
    return median(times(both, 200))


def _measure_gradient() -> float:
    """Return the seconds in which a client works out the gradient at an anchor."""
    model, start, x, y = _make_client()
    return median(times(lambda: full_gradient(model.load(start), x, y), 60))


def _make_client() -> tuple[FlatModel, Vector, Tensor, Tensor]:
    """Return a network, its initial vector, and a client's 50 samples."""
    torch.set_num_threads(1)
    config = compose_config(STOCFL)
    dataset = config.dataset
    model = FlatModel(config.model.build(dataset.shape, dataset.classes))
    start = initial_vector(config.model, dataset.shape, dataset.classes, 0)
    return model, start, torch.rand(50, *dataset.shape), torch.arange(50) % 10
