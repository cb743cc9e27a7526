"""How methods fared under drift, as a table from saved rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

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
    final, mean : float
        Accuracy in the last round, and its mean over the run.
    bytes_up, bytes_down : int
    """

    before: float | None
    just_after: float | None
    recovered: float | None
    rounds_to_recover: float | None
    final: float | None
    mean: float | None
    bytes_up: int
    bytes_down: int


def score(rounds: Sequence[Mapping[str, Json]], drifts: Sequence[int]) -> Score:
    """Score one run.

    Parameters
    ----------
    rounds : sequence of mappings
        The lines of `rounds.jsonl`.
    drifts : sequence of int
        The rounds at whose start the data changed.
    """
    curve = {r["round"]: r["accuracy"] for r in rounds if r["accuracy"] is not None}
    last = max((row["round"] for row in rounds), default=0)
    inside = [drift for drift in drifts if drift <= last]
    ends = [*[drift - 1 for drift in inside[1:]], last]
    spans = list(zip(inside, ends, strict=False))
    times = [_rounds_to_recover(curve, start, end) for start, end in spans]
    known = [time for time in times if time is not None]
    return Score(
        _mean(curve.get(drift - 1) for drift in inside),
        _mean(curve.get(drift) for drift in inside),
        _mean(curve.get(end) for _, end in spans),
        fmean(known) if known and len(known) == len(times) else None,
        curve.get(last),
        _mean(curve.values()),
        sum(row["bytes_up"] for row in rounds),
        sum(row["bytes_down"] for row in rounds),
    )


def _rounds_to_recover(curve: Mapping[int, float], start: int, end: int) -> int | None:
    target = curve.get(start - 1)
    if target is None:
        return None
    for round in range(start, end + 1):
        if curve.get(round, 0.0) >= target - RECOVERED_WITHIN:
            return round - start + 1
    return None


def _mean(values: object) -> float | None:
    found = [value for value in values if value is not None]  # type: ignore[attr-defined]
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


def table(title: str, scores: Mapping[str, Score], caption: str = "") -> Table:
    """Lay scores out as one table, a row per run."""
    result = Table(
        title=title,
        title_justify="left",
        caption=caption or None,
        caption_justify="left",
    )
    result.add_column("strategy")
    for name in (
        "before",
        "just after",
        "recovered",
        "rounds to recover",
        "final",
        "mean",
        "kB up",
        "kB down",
    ):
        result.add_column(name, justify="right")
    for name, entry in scores.items():
        result.add_row(
            name,
            *(
                _percent(value)
                for value in (entry.before, entry.just_after, entry.recovered)
            ),
            "never"
            if entry.rounds_to_recover is None
            else f"{entry.rounds_to_recover:g}",
            _percent(entry.final),
            _percent(entry.mean),
            f"{entry.bytes_up / 1e3:.1f}",
            f"{entry.bytes_down / 1e3:.1f}",
        )
    return result


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"
