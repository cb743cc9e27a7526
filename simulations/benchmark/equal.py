"""How often methods that are equal seem to lead: FedAvg against itself (an A/A test).

Six twins of FedAvg draw other participants than FedAvg, and differ in nothing else, on
the stream of the main job. What differs between them is chance, so that every lead is a
false one. Tables of 3 and of 5 seeds are drawn from those that were run; the difference
of each twin is centred, so that it is zero over all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

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
    """Return the centred differences, shape (accuracies, twins, seeds)."""
    values = np.zeros((1 + TWINS, SEEDS, len(LED)))
    for twin in range(1 + TWINS):
        for seed in range(SEEDS):
            own = f"{TWIN} +selection.number={twin}" if twin else RUN
            run = finish(f"{own} seed={seed}")
            found = score(run.rounds, run.drifts)
            values[twin, seed] = [number(found) for _, number, *_ in LED]
    gaps = (values[1:] - values[0]).transpose(2, 0, 1)
    return np.asarray(gaps - gaps.mean(axis=-1, keepdims=True))


def false_leads(
    gaps: FloatArray, seeds: int, rule: Callable[[Gaps], bool], tables: int
) -> float:
    """Return the share of tables in which a method is called a lead.

    ``gaps`` of one accuracy have shape (methods, seeds that were run).
    """
    rng = np.random.default_rng(seeds)
    count = 0
    for _ in range(tables):
        drawn = gaps[:, rng.choice(gaps.shape[1], seeds, replace=False)].tolist()
        named = {str(n): [(gap, 0.0) for gap in each] for n, each in enumerate(drawn)}
        count += rule(named)
    return count / tables


def rows() -> Iterator[Row]:
    """Measure how often something is called a lead, by each rule."""
    watch = Stopwatch()
    gaps = measure_gaps()
    spent = str(watch.lap())
    for methods in (1, TWINS):
        for seeds in (3, 5):
            for name, rule in RULES.items():
                tables = TABLES // 10 if rule is bootstrap else TABLES
                rates = [
                    false_leads(each[:methods], seeds, rule, tables) for each in gaps
                ]
                ours = rule is holm
                shown = ", ".join(f"{100 * rate:.1f}%" for rate in rates)
                what = f"{methods} of {methods} equal: {name}, {seeds} seeds"
                limit = f"{100 * LEVEL:.0f}%" if ours else "-"
                yield Row(what, shown, limit, not ours or max(rates) <= LEVEL, spent)
