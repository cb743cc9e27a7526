"""How often methods that are equal seem to lead: FedAvg against itself (an A/A test).

Six twins of FedAvg draw other participants than FedAvg, and differ in nothing else, on
the stream of the main job. What differs between them is chance, so that every lead is a
false one. Tables of 3 and of 5 seeds are drawn from those that were run, each seed with
the methods as they are or exchanged, so that no method is ahead over all tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import sqrt

import numpy as np

from cfl_flower.analysis.drift_metrics import score
from cfl_flower.analysis.leads import LEVEL, find_lead, find_leads
from cfl_flower.analysis.tables import LED
from cfl_flower.learning.selection import Known, RandomSelection
from cfl_flower.settings import Count, settings
from cfl_flower.types import FloatArray, IntArray
from simulations.benchmark.measure import Row, Stopwatch, finish

SEEDS = 24
TWINS = 6
TABLES = 4000
"""Tables that are drawn for each number of seeds."""
RUN = "strategy=fedavg engine=inprocess"
TWIN = f"{RUN} selection._target_=simulations.benchmark.equal.OtherDraws"

Gaps = Mapping[str, list[tuple[float, float]]]
"""The differences of each method, beside zeros."""


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


def two_errors(gaps: Gaps) -> bool:
    """Return whether a difference exceeds two standard errors: the rule until 0.2."""
    found = (find_lead(each) for each in gaps.values())
    return any(lead and abs(lead.mean) > 2 * (lead.error or 0) for lead in found)


def interval(gaps: Gaps) -> bool:
    """Return whether a 95% t-interval of a method, by itself, is without zero."""
    found = (find_lead(each) for each in gaps.values())
    return any(lead is not None and lead.holds for lead in found)


def bootstrap(gaps: Gaps) -> bool:
    """Return whether a method's bootstrap interval (percentiles) is without zero."""
    rng = np.random.default_rng(0)
    for each in gaps.values():
        some = np.array([gap for gap, _ in each])
        means = rng.choice(some, (400, len(some))).mean(axis=1)
        low, high = np.quantile(means, [LEVEL / 2, 1 - LEVEL / 2])
        if low > 0 or high < 0:
            return True
    return False


def holm(gaps: Gaps) -> bool:
    """Return whether anything is called a lead by the rule of the tables."""
    return any(lead.holds for lead in find_leads(gaps).values())


RULES: dict[str, Callable[[Gaps], bool]] = {
    "two standard errors": two_errors,
    "bootstrap": bootstrap,
    "t-interval": interval,
    "t-test and Holm": holm,
}


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


def false_leads(
    gaps: FloatArray, seeds: int, rule: Callable[[Gaps], bool], tables: int
) -> float:
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
        count += rule(named)
    return count / tables


def rows() -> Iterator[Row]:
    """Measure how often something is called a lead, by each rule."""
    watch = Stopwatch()
    gaps = measure_gaps()
    spent = str(watch.lap())
    # Two standard errors of what is drawn.
    chance = 2 * sqrt(LEVEL * (1 - LEVEL) / TABLES)
    names = ", ".join(heading for heading, *_ in LED)
    for seeds in (3, 5):
        for name, rule in RULES.items():
            tables = TABLES // 10 if rule is bootstrap else TABLES
            one = [_mean_of_each(each, seeds, rule, tables // TWINS) for each in gaps]
            rates = [false_leads(each, seeds, rule, tables) for each in gaps]
            ours = rule is holm
            what = f"{name}, {seeds} seeds: leads in {names}: 1, any of {TWINS} equals"
            figure = f"{_in_percent(one)}; {_in_percent(rates)} %"
            limit = f"{100 * LEVEL:.0f} ± {100 * chance:.1f} %" if ours else "-"
            holds = not ours or max(rates) <= LEVEL + chance
            yield Row(what, figure, limit, holds, spent)


def _mean_of_each(
    gaps: FloatArray, seeds: int, rule: Callable[[Gaps], bool], tables: int
) -> float:
    """Return how often a method by itself is called a lead, the mean over methods."""
    rates = [false_leads(each[np.newaxis], seeds, rule, tables) for each in gaps]
    return float(np.mean(rates))


def _in_percent(shares: Sequence[float]) -> str:
    return ", ".join(f"{100 * share:.1f}" for share in shares)
