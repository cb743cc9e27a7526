"""How a method fared under drift, in numbers from saved rounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

import numpy as np
from scipy.optimize import linear_sum_assignment

from cfl_flower.runs.record import device_seconds
from cfl_flower.types import ClientId, Json

RECOVERED_WITHIN = 0.02
"""Recovered: within 2 points of the accuracy before the drift."""


@dataclass(frozen=True)
class Mark:
    """What other methods are timed against: the single global model of the same seed.

    Attributes
    ----------
    target : float
        The accuracy of its last round.
    reached : int
        The round from which it stays at or above that.
    seconds : float or None
        Of the simulated devices, up to the end of that round.
    """

    target: float
    reached: int
    seconds: float | None


@dataclass(frozen=True)
class Aftermath:
    """The accuracy around one drift, None where it was not tested.

    Attributes
    ----------
    start, end : int
        The first round on the new data, and the last before the next drift.
    before : float
        In the last tested round on the data before.
    just_after : float
        In the first round on the new data.
    recovered : float
        In the last tested round on the new data.
    rounds : int
        From the drift on, up to the first test within 2 points of that before.
    """

    start: int
    end: int
    before: float | None
    just_after: float | None
    recovered: float | None
    rounds: int | None

    @property
    def never(self) -> bool:
        """Whether there were tests before and after, and none showed it recovered."""
        return None not in (self.before, self.recovered) and self.rounds is None


@dataclass(frozen=True)
class Score:
    """One run in numbers; accuracies are shares, None where nothing was measured.

    Attributes
    ----------
    before : float
        Mean over drifts of the accuracy in the last tested round before. None, as all
        such means, if it lacks one of them.
    just_after : float
        The same in the first round on the new data.
    recovered : float
        The same in the last tested round before the next drift, or of the run.
    rounds_to_recover : float
        Mean over drifts of the rounds, from the drift on, until a test is within 2
        points of that before. None if none is after some drift.
    bytes_to_recover : float
        Mean over drifts of the bytes sent in those rounds, both ways.
    seconds_to_recover : float
        Mean over drifts of the simulated devices' time in those rounds.
    final, best, mean : float
        Accuracy in the last round, in the best, and its mean over the run, which is the
        area under the curve per round.
    reached : int
        The round from which the accuracy stays at or above a target.
    seconds_to_reach : float
        Of the simulated devices, up to the end of that round: time-to-accuracy.
    speedup : float
        How many times sooner than the mark's that is; in rounds where devices are not
        simulated.
    clusters, ari : float
        Means over the rounds.
    class_ari : float
        Mean over the rounds of the mean over the classes that clients mean different
        things by.
    churn : float
        Share of the clients that change their cluster in a round, mean over the run.
    bytes_up, bytes_down : int
    never_recovered : bool
        Whether tests show that it did not recover from some drift.
    target : float
        The accuracy to reach.
    """

    before: float | None
    just_after: float | None
    recovered: float | None
    rounds_to_recover: float | None
    bytes_to_recover: float | None
    seconds_to_recover: float | None
    final: float | None
    best: float | None
    mean: float | None
    reached: int | None
    seconds_to_reach: float | None
    speedup: float | None
    clusters: float | None
    ari: float | None
    class_ari: float | None
    churn: float | None
    bytes_up: int
    bytes_down: int
    never_recovered: bool
    target: float | None


def score(
    rounds: Sequence[Mapping[str, Json]],
    drifts: Sequence[int],
    mark: Mark | None = None,
    tests: Sequence[Mapping[str, Json]] = (),
) -> Score:
    """Score one run.

    Parameters
    ----------
    rounds : sequence of mappings
        The lines of `rounds.jsonl`.
    drifts : sequence of int
        The rounds at whose start the data changed.
    mark : Mark, optional
        Sets the accuracy to reach, and the time to beat.
    tests : sequence of mappings
        The lines of `clients.jsonl`, which say who is in which cluster.
    """
    curve = _curve(rounds)
    last = max((row["round"] for row in rounds), default=0)
    around = around_drifts(rounds, drifts)
    spent = [
        [row for row in rounds if 0 <= row["round"] - each.start < each.rounds]
        for each in around
        if each.rounds is not None
    ]
    complete = len(spent) == len(around)
    sent = [sum(row["bytes_up"] + row["bytes_down"] for row in rows) for rows in spent]
    waited = [device_seconds(rows, rows[-1]["round"]) for rows in spent]
    reached = None if mark is None else stays_above(curve, mark.target)
    seconds = device_seconds(rounds, reached)
    return Score(
        before=mean_of_all(each.before for each in around),
        just_after=mean_of_all(each.just_after for each in around),
        recovered=mean_of_all(each.recovered for each in around),
        rounds_to_recover=mean_of_all(each.rounds for each in around),
        bytes_to_recover=mean_of_all(sent) if complete else None,
        seconds_to_recover=mean_of_all(waited) if complete else None,
        final=curve.get(last),
        best=max(curve.values(), default=None),
        mean=mean_of_known(curve.values()),
        reached=reached,
        seconds_to_reach=seconds,
        speedup=_speedup(mark, reached, seconds),
        clusters=mean_of_known(row.get("num_clusters") for row in rounds),
        ari=mean_of_known(row.get("ari") for row in rounds),
        class_ari=mean_of_known(map(_class_ari, rounds)),
        churn=churn(tests),
        bytes_up=sum(row["bytes_up"] for row in rounds),
        bytes_down=sum(row["bytes_down"] for row in rounds),
        never_recovered=any(each.never for each in around),
        target=None if mark is None else mark.target,
    )


def _class_ari(row: Mapping[str, Json]) -> float | None:
    """Return the mean over classes with several meanings: one alone tells nothing."""
    scores, counts = row.get("class_ari") or (), row.get("class_meanings") or ()
    pairs = zip(scores, counts, strict=True)
    return mean_of_known(score for score, count in pairs if count > 1)


def make_mark(rounds: Sequence[Mapping[str, Json]]) -> Mark | None:
    """Return what the single global model's run sets; None if it was never tested.

    Examples
    --------
    >>> lines = [{"round": r + 1, "accuracy": a} for r, a in enumerate([0.8, 0.5, 0.7])]
    >>> make_mark(lines)
    Mark(target=0.7, reached=3, seconds=None)
    """
    curve = _curve(rounds)
    if not curve:
        return None
    target = curve[max(curve)]
    reached = stays_above(curve, target)
    assert reached is not None
    return Mark(target, reached, device_seconds(rounds, reached))


def _speedup(
    mark: Mark | None, reached: int | None, seconds: float | None
) -> float | None:
    if mark is None or reached is None:
        return None
    if mark.seconds is None or not seconds:
        return mark.reached / reached
    return mark.seconds / seconds


def around_drifts(
    rounds: Sequence[Mapping[str, Json]], drifts: Sequence[int]
) -> list[Aftermath]:
    """Return the accuracy around each drift of a run.

    Examples
    --------
    >>> lines = [{"round": r + 1, "accuracy": a} for r, a in enumerate([0.8, 0.5, 0.7])]
    >>> (found,) = around_drifts(lines, [2])
    >>> found.before, found.just_after, found.recovered, found.rounds
    (0.8, 0.5, 0.7, None)
    """
    curve = _curve(rounds)
    last = max((row["round"] for row in rounds), default=0)
    bounds = [1, *[drift for drift in drifts if drift <= last], last + 1]
    found = []
    for since, start, after in zip(bounds, bounds[1:], bounds[2:], strict=False):
        before = _last_tested(curve, since, start)
        found.append(
            Aftermath(
                start,
                after - 1,
                before,
                curve.get(start),
                _last_tested(curve, start, after),
                _rounds_to_recover(curve, before, start, after),
            )
        )
    return found


def _curve(rounds: Sequence[Mapping[str, Json]]) -> dict[int, float]:
    return {r["round"]: r["accuracy"] for r in rounds if r["accuracy"] is not None}


def _last_tested(curve: Mapping[int, float], start: int, stop: int) -> float | None:
    """Return the accuracy in the last tested round from a start to before a stop."""
    return next((curve[r] for r in reversed(range(start, stop)) if r in curve), None)


def _rounds_to_recover(
    curve: Mapping[int, float], before: float | None, start: int, stop: int
) -> int | None:
    if before is None:
        return None
    for round in range(start, stop):
        if round in curve and curve[round] >= before - RECOVERED_WITHIN:
            return round - start + 1
    return None


def stays_above(curve: Mapping[int, float], target: float) -> int | None:
    """Return the round from which an accuracy stays at or above a target.

    Examples
    --------
    >>> stays_above({1: 0.9, 2: 0.5, 3: 0.8, 4: 0.9}, 0.8)
    3
    """
    reached = None
    for round in sorted(curve, reverse=True):
        if curve[round] < target:
            break
        reached = round
    return reached


def mean_of_known(values: Iterable[float | None]) -> float | None:
    """Return the mean of the numbers that there are, None without any."""
    found = [value for value in values if value is not None]
    return fmean(found) if found else None


def mean_of_all(values: Iterable[float | None]) -> float | None:
    """Return the mean, None without any number or if one is not known.

    Examples
    --------
    >>> mean_of_all([1.0, 2.0]), mean_of_all([1.0, None]), mean_of_all([])
    (1.5, None, None)
    """
    found = list(values)
    return None if None in found else mean_of_known(found)


def caught_up(
    single: Sequence[Mapping[str, Json]], other: Sequence[Mapping[str, Json]]
) -> int | None:
    """Return the round from which one run stays at least level with another.

    Level: not more than a point of accuracy below, in the rounds in which both were
    tested. None if it ends below.
    """
    curve, better = _curve(single), _curve(other)
    both = sorted(curve.keys() & better.keys())
    below = [round for round in both if curve[round] < better[round] - 0.01]
    return next((r for r in both if r > max(below, default=0)), None)


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
