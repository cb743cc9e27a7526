"""What worker processes gain over one core, what they cost, and what limits them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from statistics import median
from threading import Event, Thread
from time import process_time
from typing import TYPE_CHECKING, NamedTuple

import psutil

from cfl_flower.analysis.saved import SavedRun
from cfl_flower.runs.loggers import NoLogger
from cfl_flower.settings import settings
from tests.benchmarks import measure as bench

if TYPE_CHECKING:
    from cfl_flower.run_config import RunConfig
    from cfl_flower.runs.callbacks import Callback

WARM_UP = 3
"""Rounds that are not measured."""

COMMON = """
    strategy=fedavg partition=iid drift=none clients=1000 partition.samples=40
    partition.test_samples=10 strategy.local.batch_size=10 system.evaluate_every=999
    system.checkpoint_every=999 logger._target_=tests.benchmarks.cores.CpuLog
"""
WIDE = f"{COMMON} dataset.size=28 participants=20 strategy.local.epochs=15"
CNN = f"{WIDE} model=fedccfa_cnn rounds=8"
MLP = f"{WIDE} model=mlp model.hidden=200 rounds=43"
SOFTMAX = f"{COMMON} participants=100 strategy.local.epochs=5 model=mclr rounds=43"

MEMORY = 150.0
"""Megabytes that a worker may have of its own."""

START = 1.0
"""Seconds by which workers may delay the end of the first round."""


class Measured(NamedTuple):
    """A run: seconds of the first and of a steady round, and what the server took."""

    first: float
    steady: float
    server: float
    """CPU seconds of this process in a round."""
    memory: float
    """Megabytes that a worker had of its own, the most."""


clocks: list[float] = []
"""CPU seconds of this process at the end of each round."""


@settings("logger")
class CpuLog(NoLogger):
    """Notes what the server has taken."""

    @contextmanager
    def open(self, config: RunConfig, done: int) -> Iterator[Callback]:
        """Return a callback that looks at the clock."""
        clocks.clear()
        yield lambda record, rows, state: clocks.append(process_time())


def rows() -> Iterator[bench.Row]:
    """Compare two workers with one core, in turns."""
    works = {
        "FedCCFA's CNN": (CNN, 1.85),
        "MLP 784-200-10": (MLP, 1.7),
        "softmax regression, 100 participants": (SOFTMAX, 1.5),
    }
    for name, (overrides, least) in works.items():
        one = []
        two = []
        for _ in range(3):
            one.append(measure(f"{overrides} engine=inprocess"))
            two.append(measure(f"{overrides} engine=processes workers=2"))
        alone = median(each.steady for each in one)
        both = median(each.steady for each in two)
        gains = [a.steady / b.steady for a, b in zip(one, two, strict=True)]
        yield bench.Row(
            f"{name}: two workers against one core",
            f"{alone / both:.2f} x, {min(gains):.2f} to {max(gains):.2f}",
            f"at least {least} x",
            alone / both >= least,
            f"{both:.3g} against {alone:.3g} s a round",
        )
        server = median(each.server for each in two)
        # Amdahl's law: workers wait while the server works.
        limits = ", ".join(
            f"{alone / (server + (alone - server) / cores):.1f} x on {cores}"
            for cores in (16, 64)
        )
        spent = f"server {1e3 * server:.2g} ms of CPU a round"
        yield bench.Row(f"{name}: the limit on more cores", limits, "", True, spent)
        later = median(b.first - a.first for a, b in zip(one, two, strict=True))
        yield bench.within(f"{name}: a later first round", later, START, "s")
        memory = max(each.memory for each in two)
        yield bench.within(f"{name}: own memory of a worker", memory, MEMORY, "MB")


def measure(overrides: str) -> Measured:
    """Carry out a run, and look at its workers meanwhile."""
    found: list[SavedRun] = []
    ended = Event()
    sizes = [0.0]

    def look() -> None:
        while not ended.wait(0.2):
            for worker in psutil.Process().children():
                with suppress(psutil.Error):  # it has just ended
                    sizes.append(worker.memory_full_info().uss / 1e6)

    watch = Thread(target=look)
    watch.start()
    (taken,) = bench.measure(lambda: found.append(bench.finish(overrides)), count=1)
    ended.set()
    watch.join()
    seconds = [float(row["seconds"]) for row in found[0].rounds]
    # The last round tests all clients.
    steady = median(seconds[WARM_UP:-1])
    server = median(after - before for before, after in pairwise(clocks[WARM_UP:-1]))
    return Measured(taken[0] - sum(seconds[1:]), steady, server, max(sizes))
