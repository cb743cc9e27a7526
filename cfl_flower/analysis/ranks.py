"""Methods compared over several streams by their ranks.

Demšar (2006), Statistical comparisons of classifiers over multiple data sets: on each
stream the best method has rank 1, and methods differ if their average ranks are further
apart than the critical difference of Nemenyi's test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt

import numpy as np

from cfl_flower.analysis.leads import LEVEL


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


def indistinct(ranks: Mapping[str, float], difference: float) -> list[tuple[str, str]]:
    """Return the first and last method of each group whose ranks do not differ.

    ``ranks`` go from the best to the worst. Of groups within others only the largest
    are returned, and none of a single method.
    """
    names = list(ranks)
    groups: list[tuple[str, str]] = []
    reached = 0
    for first, name in enumerate(names):
        last = first
        while (
            last + 1 < len(names) and ranks[names[last + 1]] - ranks[name] < difference
        ):
            last += 1
        if last > max(first, reached):
            groups.append((name, names[last]))
        reached = max(reached, last)
    return groups
