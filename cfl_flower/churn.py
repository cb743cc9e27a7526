"""How many clients change their cluster from one test to the next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np
from scipy.optimize import linear_sum_assignment

from cfl_flower.types import ClientId, Json


def churn(tests: Iterable[Mapping[str, Json]]) -> float | None:
    """Return the share of the clients that change their cluster in a round.

    A cluster is known by its members, not by its number, which a re-clustering gives
    anew: the clusters of one test and of the next are paired so that as many clients
    as possible stay. Between tests that are rounds apart, what they show is spread over
    these rounds: who leaves and comes back in between is not seen. Clients that only
    one of the two tests has are left out.

    Parameters
    ----------
    tests : iterable of mappings
        The lines of `clients.jsonl`.

    Returns
    -------
    float or None
        The mean over the rounds; None unless two tests have a client in common.

    Examples
    --------
    Of four clients one moves; then the numbers are other ones, and nobody moves.

    >>> clusters = [[0, 0, 1, 1], [0, 1, 1, 1], [5, 2, 2, 2]]
    >>> churn(
    ...     {"round": t, "client": i, "cluster": k}
    ...     for t, row in enumerate(clusters, 1)
    ...     for i, k in enumerate(row)
    ... )
    0.125
    """
    clusters: dict[int, dict[ClientId, int]] = {}
    for row in tests:
        clusters.setdefault(row["round"], {})[row["client"]] = row["cluster"]
    moved, between = 0.0, 0
    for one, two in pairwise(sorted(clusters)):
        before, after = clusters[one], clusters[two]
        both = [client for client in before if client in after]
        if both:
            numbers = [before[each] for each in both], [after[each] for each in both]
            moved += count_moved(*numbers) / len(both)
            between += two - one
    return moved / between if between else None


def count_moved(before: Sequence[int], after: Sequence[int]) -> int:
    """Count who is not in the cluster that goes on where its old one was.

    Parameters
    ----------
    before, after : sequence of int
        The cluster of each client, under numbers that need not mean the same.

    Examples
    --------
    Two clusters change their numbers; then two merge, and the smaller one moves.

    >>> count_moved([0, 0, 1, 1], [1, 1, 0, 0]), count_moved([0, 0, 0, 1], [1, 1, 1, 1])
    (0, 1)
    """
    if before == after:
        return 0
    old, rows = np.unique(before, return_inverse=True)
    new, columns = np.unique(after, return_inverse=True)
    shared = np.zeros((len(old), len(new)), np.int64)
    np.add.at(shared, (rows, columns), 1)
    pairs = linear_sum_assignment(shared, maximize=True)
    return len(before) - int(shared[pairs].sum())
