"""StoCFL's server in its largest setting: on Ray, and where nobody is alike."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median

import torch

from cfl_flower.config.compose import compose_config
from cfl_flower.config.overrides import split
from cfl_flower.learning.training import full_gradient, train
from cfl_flower.seeding import generator
from simulations.benchmark import measure as bench
from simulations.run import run

RUN = """
    strategy=stocfl strategy.sketch=1024 drift=none dataset.size=28 model=mlp
    model.hidden=2048 clients=4800 participants=480 partition.samples=50
    partition.test_samples=8 strategy.local.epochs=5 strategy.local.batch_size=50
    system.evaluate_every=99 system.checkpoint_every=99 workers=2 rounds=5
"""
"""StoCFL's own largest setting, on digits: 1,628,170 parameters."""

KNOWN = f"{RUN} clients=480"
"""As many participants in a round, all of whom are known from the first one on."""


APART = f"""
    {RUN} strategy.threshold=1 strategy.sketch=0 clients=480 strategy.local.epochs=1
    engine=inprocess rounds=2
"""
"""As many clusters as participants, as of real images with few samples each."""


def rows() -> Iterator[bench.Row]:
    """Measure StoCFL's server where clients merge, on Ray, and where nobody does."""
    yield from _merging()
    peak, size = bench.in_process(_measure_apart)
    name = "StoCFL, 480 clusters of 1.6 million parameters, in process"
    yield bench.within(f"{name}: memory", peak / 1e9, 12, "GB")
    # A model and a direction of each.
    yield bench.within(f"{name}: checkpoint", size / 1e9, 6.5, "GB")


def _measure_apart() -> tuple[int, int]:
    """Return the peak memory of a run without any merge, and its checkpoint's bytes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run")
        run(compose_config([*split(APART), f"output_dir={path}"]))
        files = (path / "checkpoint").iterdir()
        return bench.peak_bytes(), sum(file.stat().st_size for file in files)


def _merging() -> Iterator[bench.Row]:
    """Measure memory and time of the server of StoCFL's largest setting, on Ray.

    Local work is the training of both models. Early rounds of 4,800 clients are first
    contacts for most, who compute the gradient psi as well: there it is counted.
    """
    (runs, gradient), training = bench.beside_two_workers(
        _train_both,
        lambda: bench.beside_two_workers(
            _find_gradient, lambda: (bench.finish(RUN), bench.finish(KNOWN))
        ),
    )
    peak = runs[0].summary["peak_rss_mb"] / 1000
    name = "StoCFL, 4,800 clients, 480 in a round"
    yield bench.within(f"{name}: memory of the server", peak, 4, "GB")
    kinds = ("rounds of first contacts", "steady rounds")
    for kind, done in zip(kinds, runs, strict=True):
        # The first round starts the workers, the last one tests.
        rounds = list(pairwise(done.rounds))[:-1]
        new = median(row["known"] - previous["known"] for previous, row in rounds)
        ours = bench.Seconds(median(row["seconds"] for _, row in rounds))
        work = bench.Seconds((480 * training.wall + new * gradient.wall) / 2)
        what = f"StoCFL, 480 in a round, {kind}: against local work on 2 workers"
        yield bench.compare(what, ours, work, 1.3)


def _train_both() -> bench.Seconds:
    """Return the time in which a client trains both models."""
    config, model, start, x, y = bench.set_up(RUN, 50)
    local = config.strategy.local
    anchor = torch.from_numpy(start.copy())

    def both() -> None:
        rng = generator(0, "batches")
        train(model.load(start), x, y, replace(local, mu=0.05), rng, anchor=anchor)
        model.to_vector()
        train(model.load(start), x, y, local, rng)
        model.to_vector()

    # Ten seconds: the two workers start one after the other, and must share caches.
    return bench.measure(both, count=200)[0]


def _find_gradient() -> bench.Seconds:
    """Return the time in which a client computes the gradient at an anchor."""
    _, model, start, x, y = bench.set_up(RUN, 50)
    return bench.measure(lambda: full_gradient(model.load(start), x, y), count=60)[0]
