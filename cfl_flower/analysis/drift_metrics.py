"""Scores of a run under drift: accuracy, recovery, cost and stability of clusters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from math import inf
from operator import itemgetter
from statistics import fmean
from typing import Any, TypeAlias

import numpy as np

from cfl_flower.runs.record import RunLines, client_epochs, device_seconds
from cfl_flower.types import ClientId, Json

MEASURED = {
    "balanced_accuracy": "balanced accuracy",
    "macro_f1": "macro-F1",
    "auc": "AUC",
    "calibration": "calibration error",
    "worst_tenth": "worst tenth",
    "validation_accuracy": "validation",
}
"""Shares that stand in the line of a round where they are asked for, and headings."""

LAST_TESTS = 10
"""Tested rounds at the end of a run whose mean stands beside the last of them."""

RECOVERED_WITHIN = 0.02
"""Recovered: within 2 points of the accuracy before the drift."""


Score: TypeAlias = dict[str, Any]
"""One run in numbers, by their names; accuracies are shares.

None where nothing was measured. What is of drifts is the mean over all of them, and
None if one has no number. `score` computes them, and the glossary says what each is.
"""

Scores: TypeAlias = Mapping[str, Sequence[Score]]
"""The scores of each method's seeds, by its label."""


def score(
    rounds: RunLines,
    drifts: Sequence[int],
    reference: RunLines = (),
    tests: RunLines = (),
    ahead: int = 0,
) -> Score:
    """Score one run by the lines of its `rounds.jsonl`.

    ``drifts`` are the rounds whose tests are the first on changed data, which clients
    train on ``ahead`` rounds later: 1 in a prequential run. A drift whose data nobody
    has trained on yet is not scored, but the data before it end there. ``reference``
    are the lines of the run whose last accuracy is the target, and its time the one to
    beat: a single global model, same seed. ``tests``, the lines of `clients.jsonl`,
    hold the clusters.
    """
    curve = _accuracies(rounds)
    last = max((row["round"] for row in rounds), default=0)
    goal = _accuracies(reference)
    target = goal[max(goal)] if goal else None
    reached, seconds = _time_to(target, rounds)
    return {
        **_after_drifts(rounds, drifts, ahead),
        "final": curve.get(last),
        "best": max(curve.values(), default=None),
        # Over the run: the area under the curve per round.
        "mean": mean_of_known(curve.values()),
        # One round of a run under drift is often far from its neighbours.
        "last_ten": mean_of_known(curve[r] for r in sorted(curve)[-LAST_TESTS:]),
        # From this round on it stays at or above the target: time-to-accuracy.
        "reached": reached,
        "seconds_to_reach": seconds,
        "speedup": _speedup(target, rounds, reference),
        "target": target,
        "clusters": mean_of_known(row.get("num_clusters") for row in rounds),
        "ari": mean_of_known(row.get("ari") for row in rounds),
        # Over the classes whose meaning differs between clients.
        "class_ari": mean_of_known(map(_class_ari, rounds)),
        "churn": churn(tests),
        "bytes_up": sum(row["bytes_up"] for row in rounds),
        "bytes_down": sum(row["bytes_down"] for row in rounds),
        "client_epochs": client_epochs(rounds),
        # The largest of a client, by all that it sent.
        "epsilon": rounds[-1].get("epsilon") if rounds else None,
        **_failed(rounds, tests),
        **{
            name: _last_ten(rounds, name)
            for name in MEASURED
            if any(name in row for row in rounds)
        },
    }


def _after_drifts(
    rounds: RunLines, drifts: Sequence[int], ahead: int
) -> dict[str, Any]:
    """Return what drifts did, and what it took to recover from them: means."""
    last = max((row["round"] for row in rounds), default=0)
    bounds = [1, *[drift for drift in drifts if drift + ahead <= last]]
    later = [drift for drift in drifts if drift + ahead > last]
    bounds.append(min([*later, last + 1]))
    times = zip(bounds, bounds[1:], bounds[2:], strict=False)
    found = [_recovery(rounds, *three, ahead) for three in times]
    return {
        **{key: mean_of_all(each[key] for each in found) for key in OF_DRIFTS},
        "never_recovered": any(each["never"] for each in found),
    }


OF_DRIFTS = (
    *("before", "just_after", "recovered", "rounds_to_recover"),
    *("bytes_to_recover", "seconds_to_recover"),
)
"""Numbers of a drift: accuracies in the last test before it, in its first round and in
the last test on the new data; then what was spent from the drift up to the first test
within 2 points of the accuracy before. None where there is no test."""


def _recovery(
    rounds: RunLines, since: int, start: int, stop: int, ahead: int
) -> dict[str, Any]:
    """Return the numbers of the drift at ``start``, with data from ``since`` before it.

    The next data are from ``stop`` on. What is spent is of rounds of the new data.
    """
    curve = _accuracies(rounds)
    before = _last_tested(curve, since, start)
    after = [t for t in range(start, stop) if t in curve]
    level = inf if before is None else before - RECOVERED_WITHIN
    again = next((each for each in after if curve[each] >= level), None)
    found: dict[str, Any] = dict.fromkeys(OF_DRIFTS)
    found["before"] = before
    found["just_after"] = curve.get(start)
    found["recovered"] = _last_tested(curve, start, stop)
    found["never"] = None not in (before, found["recovered"]) and again is None
    if again is not None:
        first = start + ahead
        spent = [row for row in rounds if first <= row["round"] <= again]
        found["rounds_to_recover"] = again - first + 1
        found["bytes_to_recover"] = sum(r["bytes_up"] + r["bytes_down"] for r in spent)
        found["seconds_to_recover"] = device_seconds(spent, again)
    return found


def _failed(rounds: RunLines, tests: RunLines) -> dict[str, Any]:
    """Return how many trainings and tests clients were asked for, and how many failed.

    A client that uploads when it likes trains several times in a round.
    """
    trainings = sum(row.get("participants") or 0 for row in rounds)
    failed_trainings = len(_failures(rounds, "train"))
    # A test whose report of a drift is refused is valid.
    valid = {(row["round"], row["client"]) for row in tests}
    failed_tests = len(set(_failures(rounds, "evaluate")) - valid)
    tested = len(tests) + failed_tests
    return {
        "trainings": trainings,
        "failed_trainings": failed_trainings,
        "tested": tested,
        "failed_tests": failed_tests,
        "failed_trainings_share": failed_trainings / trainings if trainings else None,
        "failed_tests_share": failed_tests / tested if tested else None,
    }


def _last_ten(rounds: RunLines, name: str) -> float | None:
    """Return the mean of a measure over the last ten rounds that have it."""
    values = [row[name] for row in rounds if row.get(name) is not None]
    return mean_of_known(values[-LAST_TESTS:])


def _failures(rounds: RunLines, phase: str) -> list[tuple[int, ClientId]]:
    """Return the round and client of each failure in a phase."""
    return [
        (row["round"], failure["client"])
        for row in rounds
        for failure in row.get("failures", ())
        if failure["phase"] == phase
    ]


def _class_ari(row: Mapping[str, Json]) -> float | None:
    """Return the mean over classes with several meanings; one meaning has no index."""
    scores = row.get("class_ari") or ()
    counts = row.get("class_meanings") or ()
    pairs = zip(scores, counts, strict=True)
    return mean_of_known(score for score, count in pairs if count > 1)


def _time_to(target: float | None, rounds: RunLines) -> tuple[int | None, float | None]:
    """Return the round from which a target is met, and device time up to its end."""
    reached = None if target is None else stays_above(_accuracies(rounds), target)
    return reached, device_seconds(rounds, reached)


def _speedup(
    target: float | None, rounds: RunLines, reference: RunLines
) -> float | None:
    """Return how many times as fast as the reference a target is met: by device time.

    By rounds where one of the two has no times; None if it is never met.
    """
    reached, seconds = _time_to(target, rounds)
    theirs, their_seconds = _time_to(target, reference)
    if reached is None or theirs is None:
        return None
    if their_seconds is None or not seconds:
        return theirs / reached
    return their_seconds / seconds


def _accuracies(rounds: RunLines) -> dict[int, float]:
    return {r["round"]: r["accuracy"] for r in rounds if r["accuracy"] is not None}


def _last_tested(curve: Mapping[int, float], start: int, stop: int) -> float | None:
    """Return the accuracy in the last tested round from a start to before a stop."""
    return next((curve[r] for r in reversed(range(start, stop)) if r in curve), None)


def stays_above(curve: Mapping[int, float], target: float) -> int | None:
    """Return the round from which an accuracy stays at or above a target.

    Examples
    --------
    >>> stays_above({1: 0.9, 2: 0.5, 3: 0.8, 4: 0.9}, 0.8)
    3
    """
    below = max((t for t, accuracy in curve.items() if accuracy < target), default=0)
    return min((t for t in curve if t > below), default=None)


def mean_of_known(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are not None; None without any."""
    found = [value for value in values if value is not None]
    return fmean(found) if found else None


def mean_of_all(values: Iterable[float | None]) -> float | None:
    """Return the mean; None without any value, or if one is None.

    Examples
    --------
    >>> mean_of_all([1.0, 2.0]), mean_of_all([1.0, None]), mean_of_all([])
    (1.5, None, None)
    """
    found = list(values)
    return None if None in found else mean_of_known(found)


def churn(tests: Iterable[Mapping[str, Json]]) -> float | None:
    """Return the share of the clients that change their cluster in a round.

    A cluster is identified by its members, not by its number, which a re-clustering
    changes: the clusters of one test and of the next are paired so that as many clients
    as possible stay. Between tests that are rounds apart, the change is spread over
    these rounds: a client that leaves and returns in between is not seen. Clients that
    only one of the two tests has are left out.

    From the lines of `clients.jsonl`, the mean over the rounds; None unless two tests
    have a client in common.

    Examples
    --------
    One of four clients moves; then the clusters are renumbered, and no client moves.

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
    moved = 0.0
    between = 0
    for one, two in pairwise(sorted(clusters)):
        before = clusters[one]
        after = clusters[two]
        both = [client for client in before if client in after]
        if both:
            old = [before[each] for each in both]
            new = [after[each] for each in both]
            moved += count_moved(old, new) / len(both)
            between += two - one
    return moved / between if between else None


def forgetting(
    tests: RunLines, concepts: Mapping[ClientId, Sequence[int]]
) -> float | None:
    """Return how much accuracy clients lose on their first concept until it returns.

    The accuracy of a client in the last test before its first concept leaves, less that
    in the first test after it returns: the mean over clients that have both tests.

    From the lines of `clients.jsonl`, and the concept that each client is tested on in
    each round, from the first on; None if no client has both.

    Examples
    --------
    >>> accuracies = enumerate([0.8, 0.9, 0.5, 0.6, 0.7], 1)
    >>> tests = [{"round": t, "client": 3, "accuracy": each} for t, each in accuracies]
    >>> round(forgetting(tests, {3: [0, 0, 1, 1, 0]}), 6)
    0.2
    """
    curves: dict[ClientId, dict[int, float]] = {}
    for row in tests:
        curves.setdefault(row["client"], {})[row["round"]] = row["accuracy"]
    lost = []
    for client, curve in curves.items():
        # The tests on each concept, one after the other.
        numbered = enumerate(concepts[client], 1)
        periods = [
            (concept, [curve[t] for t, _ in rounds if t in curve])
            for concept, rounds in groupby(numbered, itemgetter(1))
        ]
        first, before = periods[0]
        after = next((found for each, found in periods[1:] if each == first), [])
        if before and after:
            lost.append(before[-1] - after[0])
    return mean_of_known(lost)


def last_accuracies(tests: RunLines) -> dict[ClientId, float]:
    """Return the accuracy of each client of the last test, by `clients.jsonl`."""
    last = max((row["round"] for row in tests), default=0)
    return {row["client"]: row["accuracy"] for row in tests if row["round"] == last}


def count_moved(before: Sequence[int], after: Sequence[int]) -> int:
    """Count the clients outside of the cluster that is paired with their old one.

    By the cluster of each client; the numbers of the two need not correspond.

    Examples
    --------
    Two clusters swap their numbers; then two merge, and the smaller one moves.

    >>> count_moved([0, 0, 1, 1], [1, 1, 0, 0]), count_moved([0, 0, 0, 1], [1, 1, 1, 1])
    (0, 1)
    """
    from scipy.optimize import linear_sum_assignment

    if before == after:
        return 0
    rows, old = np.unique(before, return_inverse=True)
    columns, new = np.unique(after, return_inverse=True)
    shared = np.zeros((len(rows), len(columns)), int)
    np.add.at(shared, (old, new), 1)
    pairs = linear_sum_assignment(shared, maximize=True)
    return len(before) - int(shared[pairs].sum())
