"""What a run costs with a thousand, ten and a hundred thousand clients, in process."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median

from cfl_flower.analysis.saved import load_run
from cfl_flower.config.overrides import split
from tests.benchmarks import measure as bench

CLIENTS = (1_000, 10_000, 100_000)

RUN = """
    strategy=fielding engine=inprocess drift=regroup drift.rounds=[5] model=mclr
    clients=1000 participants=100 partition.samples=40 partition.test_samples=13
    system.evaluate_every=4 system.checkpoint_every=99 rounds=8
"""
"""All clients' data change after round 4. Its test finds it: all are clustered anew."""

DRIFT = 4


def rows() -> Iterator[bench.Row]:
    """Measure each size in a process of its own, and compare it with the last one."""
    found = [bench.in_process(measure_costs, clients) for clients in CLIENTS]
    # Importing and composing cost the same, however many clients there are.
    for (few, less), (many, more) in pairwise(zip(CLIENTS, found, strict=True)):
        for part in ("set-up", "round", "drift", "resume"):
            name = f"{part}: {many:,} clients against {few:,}, seconds"
            times = f"{more[part]:.3g} against {less[part]:.3g}"
            limit = 1.3 * many / few
            yield bench.within(name, more[part] / less[part], limit, "x", times)
    for clients, costs in zip(CLIENTS, found, strict=True):
        name = f"{clients:,} clients"
        times = f"{costs['checkpoint']:.2g} against {costs['round']:.2g}"
        ratio = costs["checkpoint"] / costs["round"]
        yield bench.within(f"{name}: a checkpoint, in rounds", ratio, 1, "x", times)
        yield bench.within(f"{name}: peak memory", costs["peak"] / 1e9, 6, "GB")


def measure_costs(clients: int) -> dict[str, float]:
    """Carry out a run, save its state again, and go on with it for a round.

    Returns the seconds of its parts, and the bytes of its peak memory. A round is one
    without a test, the median; one of a drift has a test of all, new representations of
    all, and the clustering.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run")
        options = [*split(RUN), f"clients={clients}", f"output_dir={path}"]
        (whole,) = bench.measure(lambda: bench.carry_out(options), count=1)
        saved = load_run(path)
        done, state = saved.load_state()
        (checkpoint,) = bench.measure(lambda: saved.checkpoint.save(done, state))
        again = [*options, "rounds=9", "resume=true"]
        (resumed,) = bench.measure(lambda: bench.carry_out(again), count=1)
        seconds = [float(row["seconds"]) for row in load_run(path).rounds]
        return {
            "set-up": whole[0] - sum(seconds[:8]),
            "round": median(seconds[: DRIFT - 1]),
            "drift": seconds[DRIFT - 1],
            "checkpoint": checkpoint[0],
            "resume": resumed[0] - seconds[8],
            "peak": bench.peak_bytes(),
        }
