"""Means, intervals and leads over seeds, and ranks over streams.

Demšar (2006), Statistical comparisons of classifiers over multiple data sets: on each
stream the best method has rank 1, and methods differ if their average ranks are further
apart than the critical difference of Nemenyi's test.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import fmean, stdev

import numpy as np

LEVEL = 0.05
"""The largest share of comparisons of equal methods in which something may lead."""

FEWEST = 3
"""Seeds below which nothing is called a lead: a test of two tells next to nothing."""

TESTED = (
    "±: half the 95% interval of the differences paired by seed (Student's t). No "
    "lead: p above 5% in the paired t-test, with Holm's correction for the number of "
    "methods. One or two seeds are not tested."
)
"""Explanation of a lead, for readers of a table."""

Seeds = Mapping[int, float | None]
"""The number of a method with each seed."""
Pair = tuple[float | None, float | None]
"""The values of two methods with one seed; None where one was not measured."""


@dataclass(frozen=True)
class Lead:
    """The mean difference of two methods over the seeds that both have.

    A seed fixes the data, the participants and the initial model of all methods, so the
    difference of each seed counts, not the spread of each method.
    """

    mean: float
    """Mean difference, in the unit of the compared values."""
    error: float | None
    """The standard error of the mean; None with a single seed."""
    seeds: int
    p: float | None = None
    """P-value of the paired t-test, two-sided, corrected if several methods are
    compared; None with fewer than three seeds, or if their differences are equal."""

    @property
    def holds(self) -> bool:
        """Whether the test rejects that the methods are equal."""
        return self.p is not None and self.p <= LEVEL

    @property
    def half_width(self) -> float | None:
        """Half the 95% interval of the mean; None with fewer than three seeds."""
        from scipy.special import stdtrit

        if self.error is None or self.seeds < FEWEST:
            return None
        return float(stdtrit(self.seeds - 1, 1 - LEVEL / 2)) * self.error

    def in_points(self) -> str:
        """Write a difference of shares in points, with what it is worth.

        Examples
        --------
        >>> Lead(0.021, 0.004, 3, 0.03).in_points(), Lead(0.01, 0.002, 5).in_points()
        ('+2.1 ± 1.7', '+1.0 ± 0.6, no lead')
        >>> Lead(-0.03, None, 1).in_points(), Lead(-0.03, 0.001, 2).in_points()
        ('-3.0, one seed', '-3.0, two seeds')
        """
        mean = f"{100 * self.mean:+.1f}"
        half = self.half_width
        if half is None:
            return f"{mean}, {'one seed' if self.seeds == 1 else 'two seeds'}"
        worth = "" if self.holds else ", no lead"
        return f"{mean} ± {100 * half:.1f}{worth}"


def half_width(values: Iterable[float]) -> float | None:
    """Return half the 95% interval of a mean over seeds (Student's t).

    None with fewer than three seeds.
    """
    lead = find_lead((value, 0.0) for value in values)
    return lead.half_width if lead else None


def mean_and_deviation(
    values: Sequence[float | None], factor: float, form: str
) -> str | None:
    """Write the mean ± the deviation of several seeds; None if a seed has no number.

    Examples
    --------
    >>> mean_and_deviation([0.8, 0.9], 100, ".1f")
    '85.0 ± 7.1'
    >>> mean_and_deviation([-1e-4], 1, ".2f")
    '0.00'
    """
    found = [factor * value for value in values if value is not None]
    if not found or len(found) < len(values):
        return None
    spread = f" ± {stdev(found):{form}}" if len(found) > 1 else ""
    # "z": a small negative number is 0, not -0.
    return f"{fmean(found):{form.replace('.', 'z.')}}{spread}"


def say_lead(lead: Lead | None) -> str:
    """Return a lead in points; a dash without any."""
    return lead.in_points() if lead else "-"


def find_lead(pairs: Iterable[Pair]) -> Lead | None:
    """Return the lead of the first of each pair, which are of one seed.

    None if no seed has both values.

    Examples
    --------
    >>> find_lead([(0.9, 0.8), (0.8, 0.8), (None, 0.7)])
    Lead(mean=0.05, error=0.05, seeds=2, p=None)
    """
    gaps = [a - b for a, b in pairs if a is not None and b is not None]
    if not gaps:
        return None
    # Rounded: differences that are equal but for their last bit have no spread.
    mean = round(fmean(gaps), 12)
    if len(gaps) == 1:
        return Lead(mean, None, 1)
    error = round(stdev(gaps) / sqrt(len(gaps)), 12)
    return Lead(mean, error, len(gaps), _p_value(mean, error, len(gaps)))


def _p_value(mean: float, error: float, seeds: int) -> float | None:
    """Return that of the two-sided t-test; None if there is nothing to test by."""
    from scipy.special import stdtr

    if seeds < FEWEST:
        return None
    if error == 0:
        # Equal differences are those of few counted samples, and no sign of certainty.
        return None if mean else 1.0
    return 2 * float(stdtr(seeds - 1, -abs(mean) / error))


def find_leads(pairs: Mapping[str, Iterable[Pair]]) -> dict[str, Lead]:
    """Return the leads of several methods over one, those that have a seed with both.

    Their p-values are corrected by Holm's method for the number of methods that are
    tested: if all are equal, any of them is called a lead in at most 5% of comparisons
    (Holm, 1979, A simple sequentially rejective multiple test procedure).
    """
    each = {name: find_lead(some) for name, some in pairs.items()}
    found = {name: lead for name, lead in each.items() if lead is not None}
    tested = {name: lead.p for name, lead in found.items() if lead.p is not None}
    corrected = correct(tested)
    return {n: replace(lead, p=corrected.get(n)) for n, lead in found.items()}


def leads_over(values: Mapping[str, Seeds], base: str) -> dict[str, Lead]:
    """Return the leads of all methods but one over that one, paired by seed.

    Examples
    --------
    >>> {name: lead.mean for name, lead in leads_over({"a": {0: 3}, "b": {0: 1}}, "b")\
.items()}
    {'a': 2.0}
    """
    return find_leads(
        {
            name: [(value, values[base].get(seed)) for seed, value in seeds.items()]
            for name, seeds in values.items()
            if name != base
        }
    )


def correct(values: Mapping[str, float]) -> dict[str, float]:
    """Return p-values corrected by Holm's method.

    Examples
    --------
    >>> correct({"a": 0.03, "b": 0.01, "c": 0.5})
    {'b': 0.03, 'a': 0.06, 'c': 0.5}
    """
    found: dict[str, float] = {}
    largest = 0.0
    for done, name in enumerate(sorted(values, key=values.__getitem__)):
        largest = max(largest, min(1.0, (len(values) - done) * values[name]))
        found[name] = largest
    return found


def average_ranks(scores: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the average rank of each method, from the best to the worst.

    ``scores`` has the value of a method on each stream, of which more is better; equal
    values share the mean of their ranks.

    Examples
    --------
    >>> average_ranks({"a": [0.7, 0.9], "b": [0.8, 0.9], "c": [0.1, 0.2]})
    {'b': 1.25, 'a': 1.75, 'c': 3.0}
    """
    from scipy.stats import rankdata

    table = np.array(list(scores.values()))
    ranks = rankdata(-table, axis=0).mean(axis=1).tolist()
    found = dict(zip(scores, ranks, strict=True))
    return dict(sorted(found.items(), key=lambda item: item[1]))


def critical_difference(methods: int, streams: int) -> float:
    """Return how far average ranks must be apart for two methods to differ.

    Nemenyi's test at the 5% level: q sqrt(k (k + 1) / (6 N)) for k methods, at least
    two, and N streams, where q is the quantile of the studentised range by the root of
    two (Demšar, eq. 6).
    """
    from scipy.stats import studentized_range

    quantile = studentized_range.ppf(1 - LEVEL, methods, np.inf) / sqrt(2)
    return float(quantile * sqrt(methods * (methods + 1) / (6 * streams)))
