"""How a method fared under drift, in numbers from saved rounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from cfl_flower.types import Json

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
class Score:
    """One run in numbers; accuracies are shares, None where nothing was measured.

    Attributes
    ----------
    before : float
        Mean over drifts of the accuracy in the last round before.
    just_after : float
        The same in the first round on the new data.
    recovered : float
        The same in the last round before the next drift, or of the run.
    rounds_to_recover : float
        Mean over drifts of the rounds, from the drift on, until the accuracy is within
        2 points of that before. None if it never is after some drift.
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
    churn : float
        Share of the clients that changed their cluster in a round, mean over the run.
    bytes_up, bytes_down : int
    drifts : int
        How many there were: without one, nothing is to recover from.
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
    churn: float | None
    bytes_up: int
    bytes_down: int
    drifts: int
    target: float | None


def score(
    rounds: Sequence[Mapping[str, Json]],
    drifts: Sequence[int],
    mark: Mark | None = None,
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
    """
    curve = _curve(rounds)
    last = max((row["round"] for row in rounds), default=0)
    spans = _spans(drifts, last)
    inside = [drift for drift, _ in spans]
    times = [_rounds_to_recover(curve, start, end) for start, end in spans]
    known = [time for time in times if time is not None]
    complete = bool(known) and len(known) == len(times)
    lines = {row["round"]: row for row in rounds}
    spent = [
        [lines[round] for round in range(start, start + time)]
        for start, time in zip(inside, known, strict=False)
    ]
    sent = [sum(row["bytes_up"] + row["bytes_down"] for row in rows) for rows in spent]
    waited = [device_seconds(rows, rows[-1]["round"]) for rows in spent]
    timed = complete and None not in waited
    reached = None if mark is None else stays_above(curve, mark.target)
    seconds = device_seconds(rounds, reached)
    return Score(
        before=mean_of_known(curve.get(drift - 1) for drift in inside),
        just_after=mean_of_known(curve.get(drift) for drift in inside),
        recovered=mean_of_known(curve.get(end) for _, end in spans),
        rounds_to_recover=fmean(known) if complete else None,
        bytes_to_recover=fmean(sent) if complete else None,
        seconds_to_recover=mean_of_known(waited) if timed else None,
        final=curve.get(last),
        best=max(curve.values(), default=None),
        mean=mean_of_known(curve.values()),
        reached=reached,
        seconds_to_reach=seconds,
        speedup=_speedup(mark, reached, seconds),
        clusters=mean_of_known(row.get("num_clusters") for row in rounds),
        ari=mean_of_known(row.get("ari") for row in rounds),
        churn=mean_of_known(_churn(row) for row in rounds),
        bytes_up=sum(row["bytes_up"] for row in rounds),
        bytes_down=sum(row["bytes_down"] for row in rounds),
        drifts=len(inside),
        target=None if mark is None else mark.target,
    )


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
) -> dict[int, tuple[float | None, float | None, float | None]]:
    """Return the accuracy before, in the first round after, and at the end of a drift.

    Examples
    --------
    >>> lines = [{"round": r + 1, "accuracy": a} for r, a in enumerate([0.8, 0.5, 0.7])]
    >>> around_drifts(lines, [2])
    {2: (0.8, 0.5, 0.7)}
    """
    curve = _curve(rounds)
    last = max((row["round"] for row in rounds), default=0)
    return {
        start: (curve.get(start - 1), curve.get(start), curve.get(end))
        for start, end in _spans(drifts, last)
    }


def _curve(rounds: Sequence[Mapping[str, Json]]) -> dict[int, float]:
    return {r["round"]: r["accuracy"] for r in rounds if r["accuracy"] is not None}


def _spans(drifts: Sequence[int], last: int) -> list[tuple[int, int]]:
    """Return the first and the last round after each drift of a run."""
    inside = [drift for drift in drifts if drift <= last]
    ends = [*[drift - 1 for drift in inside[1:]], last]
    return list(zip(inside, ends, strict=False))


def _churn(row: Mapping[str, Json]) -> float | None:
    """Return the share of the clients that changed their cluster in a round."""
    moved, sizes = row.get("moved"), row.get("cluster_sizes")
    return None if moved is None or not sizes else float(moved / sum(sizes))


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


def device_seconds(
    rounds: Sequence[Mapping[str, Json]], last: int | None = None
) -> float | None:
    """Return the time of the simulated devices up to the end of a round.

    None without that round, or if a round before it was not timed.

    Examples
    --------
    >>> times = [{"round": i, "virtual_seconds": 2.0 * i} for i in (1, 2, 3)]
    >>> device_seconds(times, 2)
    6.0
    """
    if last is None:
        return None
    spent = [row.get("virtual_seconds") for row in rounds if row["round"] <= last]
    return None if None in spent else float(sum(spent))  # type: ignore[arg-type]


def _rounds_to_recover(curve: Mapping[int, float], start: int, end: int) -> int | None:
    target = curve.get(start - 1)
    if target is None:
        return None
    for round in range(start, end + 1):
        if curve.get(round, 0.0) >= target - RECOVERED_WITHIN:
            return round - start + 1
    return None


def mean_of_known(values: Iterable[float | None]) -> float | None:
    """Return the mean of the numbers that there are, None without any."""
    found = [value for value in values if value is not None]
    return fmean(found) if found else None


def caught_up(
    single: Sequence[Mapping[str, Json]], other: Sequence[Mapping[str, Json]]
) -> int | None:
    """Return the round from which one run stays at least level with another.

    Level: not more than a point of accuracy below. None if it ends below.
    """
    below = [
        row["round"]
        for row, better in zip(single, other, strict=False)
        if None not in (row["accuracy"], better["accuracy"])
        and row["accuracy"] < better["accuracy"] - 0.01
    ]
    last = single[-1]["round"] if single else 0
    after = max(below, default=0) + 1
    return after if after <= last else None
