"""How often methods that are equal seem to lead: FedAvg against itself (an A/A test).

Six twins of FedAvg draw other participants than FedAvg, and differ in nothing else, on
the stream of the main job. What differs between them is chance, so that every lead is a
false one. Tables of 3 and of 5 seeds are drawn from those that were run, each seed with
the methods as they are or exchanged, so that no method is ahead over all tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt

import numpy as np

from cfl_flower.analysis.drift_metrics import score
from cfl_flower.analysis.leads import LEVEL, find_leads
from cfl_flower.analysis.tables import LED
from cfl_flower.learning.selection import Known, RandomSelection
from cfl_flower.settings import Count, settings
from cfl_flower.types import FloatArray, IntArray
from simulations.benchmark.measure import Row, clock, finish, say

SEEDS = 24
TWINS = 6
TABLES = 4000
"""Tables that are drawn for each number of seeds."""
RUN = "strategy=fedavg engine=inprocess"
TWIN = f"{RUN} selection._target_=simulations.benchmark.equal.OtherDraws"


@settings("selection")
class OtherDraws(RandomSelection):
    """Choose uniformly at random, as the main job does, but others."""

    number: Count = 1
    """Of the twin."""

    def choose(
        self,
        members: IntArray,
        count: int,
        rng: np.random.Generator,
        known: Known | None = None,
    ) -> IntArray:
        """Return ``count`` of the members, which are rows of the state, ascending."""
        other = np.random.default_rng([int(rng.integers(2**62)), self.number])
        return super().choose(members, count, other, known)


def measure_gaps() -> FloatArray:
    """Return the differences to FedAvg, shape (accuracies, twins, seeds)."""
    values = np.zeros((1 + TWINS, SEEDS, len(LED)))
    for twin in range(1 + TWINS):
        for seed in range(SEEDS):
            own = f"{TWIN} +selection.number={twin}" if twin else RUN
            run = finish(f"{own} seed={seed}")
            found = score(run.rounds, run.drifts)
            values[twin, seed] = [number(found) for _, number, *_ in LED]
    return np.asarray((values[1:] - values[0]).transpose(2, 0, 1))


def false_leads(gaps: FloatArray, seeds: int, tables: int = TABLES) -> float:
    """Return the share of tables in which a method is called a lead.

    ``gaps`` of one accuracy have shape (methods, seeds that were run).
    """
    rng = np.random.default_rng(seeds)
    count = 0
    for _ in range(tables):
        some = rng.choice(gaps.shape[1], seeds, replace=False)
        drawn = gaps[:, some] * rng.choice([-1, 1], seeds)
        named = {
            str(n): [(gap, 0.0) for gap in each]
            for n, each in enumerate(drawn.tolist())
        }
        count += any(lead.holds for lead in find_leads(named).values())
    return count / tables


def rows() -> Iterator[Row]:
    """Measure how often something is called a lead by the rule of the tables."""
    began = clock()
    gaps = measure_gaps()
    spent = say(clock() - began)
    # Two standard errors of what is drawn.
    chance = 2 * sqrt(LEVEL * (1 - LEVEL) / TABLES)
    limit = f"{100 * LEVEL:.0f} ± {100 * chance:.1f} %"
    for seeds in (3, 5):
        for (heading, *_), each in zip(LED, gaps, strict=True):
            rate = false_leads(each, seeds)
            name = f"{seeds} seeds: a lead in {heading} of any of {TWINS} equals"
            yield Row(name, f"{100 * rate:.1f} %", limit, rate <= LEVEL + chance, spent)
