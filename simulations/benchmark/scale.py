"""What a run costs with a thousand, ten and a hundred thousand clients, in process."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from flwr.app import Message
from rich.console import Console

from cfl_flower.config.compose import RunConfig, compose_config
from cfl_flower.config.overrides import split
from cfl_flower.runs.checkpoint import Checkpoint
from cfl_flower.server_app import execute
from cfl_flower.settings import locate
from simulations.benchmark import measure as bench
from simulations.engines.inprocess import InProcessGrid

CLIENTS = (1_000, 10_000, 100_000)

RUN = """
    strategy=fielding engine=inprocess drift=regroup drift.rounds=[5] model=mclr
    clients=1000 participants=100 partition.samples=40 partition.test_samples=13
    system.evaluate_every=4 system.checkpoint_every=99 rounds=8
"""
"""All clients' data change after round 4. Its test finds it: all are clustered anew."""

DRIFT = 4


class Costs(NamedTuple):
    """CPU seconds of the parts of a run, and its peak memory."""

    setup: float
    """Up to the first training: data, hello, first clustering."""
    round: float
    """Without a test, the median."""
    drift: float
    """A test of all, new representations of all, and the clustering."""
    checkpoint: float
    resume: float
    """From the start to the first training."""
    peak: float
    """Bytes."""


class TimedGrid(InProcessGrid):
    """Notes the processor time at which each round's training begins."""

    def __init__(self) -> None:
        super().__init__()
        self.began: list[float] = []

    def push_messages(self, messages: Any) -> list[str]:
        """Note the time, and do the work."""
        listed: list[Message] = list(messages)
        if any(message.metadata.message_type == "train" for message in listed):
            self.began.append(time.process_time())
        return super().push_messages(listed)


def rows() -> Iterator[bench.Row]:
    """Measure each size in a process of its own, and compare it with the last one."""
    found = [bench.in_process(measure_costs, clients) for clients in CLIENTS]
    # Importing and composing cost the same, however many clients there are.
    for (few, less), (many, more) in pairwise(zip(CLIENTS, found, strict=True)):
        for part in ("setup", "round", "drift", "resume"):
            ratio = getattr(more, part) / getattr(less, part)
            name = f"{part}: {many:,} clients against {few:,}, CPU seconds"
            times = f"{getattr(more, part):.3g} against {getattr(less, part):.3g}"
            yield bench.within(name, ratio, 1.3 * many / few, "x", times)
    for clients, costs in zip(CLIENTS, found, strict=True):
        name = f"{clients:,} clients"
        times = f"{costs.checkpoint:.2g} against {costs.round:.2g}"
        ratio = costs.checkpoint / costs.round
        yield bench.within(f"{name}: a checkpoint, in rounds", ratio, 1, "x", times)
        yield bench.within(f"{name}: peak memory", costs.peak / 1e9, 6, "GB")


def measure_costs(clients: int) -> Costs:
    """Carry out a run, save its state again, and go on with it for a round."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run")
        options = [*split(RUN), f"clients={clients}", f"output_dir={path}"]
        config = compose_config(options)
        grid = TimedGrid()
        start = time.process_time()
        _carry_out(grid, config)
        lengths = [after - before for before, after in pairwise(grid.began)]
        plain = [
            each
            for server_round, each in enumerate(lengths, 1)
            if server_round != DRIFT
        ]
        checkpoint = Checkpoint(path / "checkpoint", config.resolved)
        done, state = checkpoint.load(
            locate(config.resolved["strategy"]["_target_"]).State
        )
        other = replace(checkpoint, folder=Path(folder, "other"))
        before = time.process_time()
        other.save(done, state)
        saved = time.process_time() - before
        resumed = TimedGrid()
        again = time.process_time()
        _carry_out(resumed, compose_config([*options, "rounds=9", "resume=true"]))
        return Costs(
            grid.began[0] - start,
            median(plain),
            lengths[DRIFT - 1],
            saved,
            resumed.began[0] - again,
            bench.peak_bytes(),
        )


def _carry_out(grid: InProcessGrid, config: RunConfig) -> None:
    execute(grid, config, Console(quiet=True))
