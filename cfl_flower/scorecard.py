"""How methods fared under drift, as a table from saved rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import fmean, stdev

from rich.table import Table

from cfl_flower.types import Json

RECOVERED_WITHIN = 0.02
"""Recovered: within 2 points of the accuracy before the drift."""


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
    final, best, mean : float
        Accuracy in the last round, in the best, and its mean over the run, which is the
        area under the curve per round.
    reached : int
        The round from which the accuracy stays at or above a target.
    seconds_to_reach : float
        Of the simulated devices, up to the end of that round: time-to-accuracy.
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
    final: float | None
    best: float | None
    mean: float | None
    reached: int | None
    seconds_to_reach: float | None
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
    target: float | None = None,
) -> Score:
    """Score one run.

    Parameters
    ----------
    rounds : sequence of mappings
        The lines of `rounds.jsonl`.
    drifts : sequence of int
        The rounds at whose start the data changed.
    target : float, optional
        The accuracy to reach.
    """
    curve = _curve(rounds)
    sent = {row["round"]: row["bytes_up"] + row["bytes_down"] for row in rounds}
    last = max((row["round"] for row in rounds), default=0)
    spans = _spans(drifts, last)
    inside = [drift for drift, _ in spans]
    times = [_rounds_to_recover(curve, start, end) for start, end in spans]
    known = [time for time in times if time is not None]
    complete = bool(known) and len(known) == len(times)
    spent = [
        sum(sent[round] for round in range(start, start + time))
        for start, time in zip(inside, known, strict=False)
    ]
    reached = None if target is None else stays_above(curve, target)
    return Score(
        before=_mean(curve.get(drift - 1) for drift in inside),
        just_after=_mean(curve.get(drift) for drift in inside),
        recovered=_mean(curve.get(end) for _, end in spans),
        rounds_to_recover=fmean(known) if complete else None,
        bytes_to_recover=fmean(spent) if complete else None,
        final=curve.get(last),
        best=max(curve.values(), default=None),
        mean=_mean(curve.values()),
        reached=reached,
        seconds_to_reach=device_seconds(rounds, reached),
        clusters=_mean(row.get("num_clusters") for row in rounds),
        ari=_mean(row.get("ari") for row in rounds),
        churn=_mean(_churn(row) for row in rounds),
        bytes_up=sum(row["bytes_up"] for row in rounds),
        bytes_down=sum(row["bytes_down"] for row in rounds),
        drifts=len(inside),
        target=target,
    )


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


def _mean(values: Iterable[float | None]) -> float | None:
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


Column = tuple[str, Callable[[Score], float | None], float, str, str]
"""Heading, number of a score, its factor, decimals, and what stands for no number."""

ACCURACIES: tuple[Column, ...] = (
    ("before", attrgetter("before"), 100, ".1f", "-"),
    ("just after", attrgetter("just_after"), 100, ".1f", "-"),
    ("recovered", attrgetter("recovered"), 100, ".1f", "-"),
    ("rounds to recover", attrgetter("rounds_to_recover"), 1, ".3g", "never"),
    ("final", attrgetter("final"), 100, ".1f", "-"),
    ("best", attrgetter("best"), 100, ".1f", "-"),
    ("mean", attrgetter("mean"), 100, ".1f", "-"),
)

COSTS: tuple[Column, ...] = (
    ("at target from round", attrgetter("reached"), 1, ".3g", "never"),
    ("device min to target", attrgetter("seconds_to_reach"), 1 / 60, ".0f", "never"),
    ("kB to recover", attrgetter("bytes_to_recover"), 1e-3, ".1f", "never"),
    ("kB up", attrgetter("bytes_up"), 1e-3, ".1f", "-"),
    ("kB down", attrgetter("bytes_down"), 1e-3, ".1f", "-"),
    ("clusters", attrgetter("clusters"), 1, ".1f", "-"),
    ("ARI", attrgetter("ari"), 1, ".2f", "-"),
    ("churn", attrgetter("churn"), 100, ".1f", "-"),
)


def table(
    title: str,
    scores: Mapping[str, Sequence[Score]],
    columns: Sequence[Column] = ACCURACIES,
    caption: str = "",
) -> Table:
    """Lay scores out as one table, a row per method.

    Parameters
    ----------
    title, caption : str
    scores : mapping of str to scores
        One for each seed; more than one give their mean and standard deviation.
    columns : sequence of Column
    """
    result = Table(
        title=title,
        title_justify="left",
        caption=caption or None,
        caption_justify="left",
    )
    result.add_column("strategy")
    for heading, *_ in columns:
        result.add_column(heading, justify="right")
    for name, entries in scores.items():
        cells = [cell(entries, column) for column in columns] if entries else [FAILED]
        result.add_row(name, *cells)
    return result


FAILED = "failed"
"""Stands in the row of a method of which no run completed."""


def drift_table(
    title: str,
    runs: Mapping[str, Sequence[Sequence[Mapping[str, Json]]]],
    drifts: Sequence[int],
) -> Table:
    """Lay out the accuracy around each drift, a row per method.

    Parameters
    ----------
    title : str
    runs : mapping of str to sequences
        The lines of `rounds.jsonl` of each seed of a method.
    drifts : sequence of int
        The rounds at whose start the data changed.
    """
    result = Table(title=title, title_justify="left")
    result.add_column("strategy")
    for drift in drifts:
        result.add_column(f"round {drift}", justify="right")
    for name, seeds in runs.items():
        found = [around_drifts(rounds, drifts) for rounds in seeds]
        cells = [_around([seed[drift] for seed in found]) for drift in drifts]
        result.add_row(name, *(cells if seeds else [FAILED]))
    return result


def _around(seeds: Sequence[tuple[float | None, float | None, float | None]]) -> str:
    means = [_mean(values) for values in zip(*seeds, strict=True)]
    return " → ".join("-" if mean is None else f"{100 * mean:.1f}" for mean in means)


def cell(entries: Sequence[Score], column: Column) -> str:
    """Return the mean over seeds; a number that one seed lacks has none."""
    heading, number, factor, form, missing = column
    values = [number(entry) for entry in entries]
    found = [factor * value for value in values if value is not None]
    if not found or len(found) < len(values):
        return missing if _asked(entries[0], heading) else "-"
    spread = f" ± {stdev(found):{form}}" if len(found) > 1 else ""
    return f"{fmean(found):{form}}{spread}"


def _asked(entry: Score, heading: str) -> bool:
    """Return whether a column has a meaning: "never" answers a question."""
    if heading.endswith("to recover"):
        return entry.drifts > 0
    return entry.target is not None or "target" not in heading
