"""Scores laid out as tables, a row per method."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from statistics import fmean, geometric_mean, stdev

from rich.table import Table

from cfl_flower.analysis.drift_metrics import (
    MEASURED,
    Recovery,
    Score,
    measure_recoveries,
)
from cfl_flower.analysis.leads import TESTED, find_leads
from cfl_flower.types import Json

Column = tuple[str, Callable[[Score], float | None], float, str, str]
"""Heading, number of a score, its factor, decimals, and what stands for no number."""

NEVER = "never"
"""Stands for the time of what did not happen."""

SPEEDUP = "speed-up to target"
"""The column of ratios, of which seeds have a geometric mean."""

ACCURACIES: tuple[Column, ...] = (
    ("before", attrgetter("before"), 100, ".1f", "-"),
    ("just after", attrgetter("just_after"), 100, ".1f", "-"),
    ("recovered", attrgetter("recovered"), 100, ".1f", "-"),
    ("rounds to recover", attrgetter("rounds_to_recover"), 1, ".3g", NEVER),
    ("final", attrgetter("final"), 100, ".1f", "-"),
    ("last ten", attrgetter("last_ten"), 100, ".1f", "-"),
    ("best", attrgetter("best"), 100, ".1f", "-"),
    ("mean", attrgetter("mean"), 100, ".1f", "-"),
)

COSTS: tuple[Column, ...] = (
    ("at target from round", attrgetter("reached"), 1, ".3g", NEVER),
    ("device min to target", attrgetter("seconds_to_reach"), 1 / 60, ".0f", NEVER),
    (SPEEDUP, attrgetter("speedup"), 1, ".2f", NEVER),
    ("device min to recover", attrgetter("seconds_to_recover"), 1 / 60, ".0f", NEVER),
    ("kB to recover", attrgetter("bytes_to_recover"), 1e-3, ".1f", NEVER),
    ("kB up", attrgetter("bytes_up"), 1e-3, ".1f", "-"),
    ("kB down", attrgetter("bytes_down"), 1e-3, ".1f", "-"),
    ("epsilon", attrgetter("epsilon"), 1, ".3g", "-"),
)

CLUSTERS: tuple[Column, ...] = (
    ("clusters", attrgetter("clusters"), 1, ".1f", "-"),
    ("ARI", attrgetter("ari"), 1, ".2f", "-"),
    ("class ARI", attrgetter("class_ari"), 1, ".2f", "-"),
    ("churn", attrgetter("churn"), 100, ".1f", "-"),
)

FAILURES: tuple[Column, ...] = (
    ("failed trainings", attrgetter("failed_trainings_share"), 100, ".1f", "-"),
    ("failed tests", attrgetter("failed_tests_share"), 100, ".1f", "-"),
)
"""Columns of a comparison in which anything failed."""


def _measure(name: str, entry: Score) -> float | None:
    return entry.measures.get(name)


MEASURES: tuple[Column, ...] = tuple(
    (heading, partial(_measure, name), 100, ".1f", "-")
    for name, heading in {**MEASURED, "forgetting": "forgetting"}.items()
)

LED = tuple(each for each in ACCURACIES if each[0] in ("final", "last ten", "mean"))
"""The accuracies that leads are of."""

FAILED = "failed"
"""Stands in the row of a method of which no run completed."""


def new_table(title: str, headings: Iterable[str], caption: str = "") -> Table:
    """Return an empty table: a column of strategies, and one of numbers per heading."""
    result = Table(
        title=title,
        title_justify="left",
        caption=caption or None,
        caption_justify="left",
    )
    # Folded: names that are cut might look alike.
    result.add_column("strategy", overflow="fold")
    for heading in headings:
        result.add_column(heading, justify="right")
    return result


def table(
    title: str,
    scores: Mapping[str, Sequence[Score]],
    columns: Sequence[Column] = ACCURACIES,
    caption: str = "",
) -> Table:
    """Lay the scores of each method's seeds out as one table, a row per method.

    Several seeds give their mean and standard deviation. A column without any number is
    left out; the caption names those of what was never reached.
    """
    done = [entries for entries in scores.values() if entries]
    found = {each: {cell(entries, each) for entries in done} for each in columns}
    shown = [each for each in columns if not done or found[each] - {"-", NEVER}]
    never = [each[0] for each in columns if each not in shown and NEVER in found[each]]
    if never:
        caption = f"{caption}\n{NEVER}, of all methods: {', '.join(never)}".strip()
    result = new_table(title, [heading for heading, *_ in shown], caption)
    for name, entries in scores.items():
        cells = [cell(entries, column) for column in shown] if entries else [FAILED]
        result.add_row(name, *cells)
    return result


def lead_table(title: str, pairs: Mapping[str, Sequence[tuple[Score, Score]]]) -> Table:
    """Lay out leads over a reference method, a row per method.

    From the scores of a method and of the reference, for each seed that both have.
    """
    result = new_table(title, [heading for heading, *_ in LED], TESTED)
    columns = [
        find_leads(
            {
                name: [(number(one), number(other)) for one, other in each]
                for name, each in pairs.items()
            }
        )
        for _, number, *_ in LED
    ]
    for name in pairs:
        found = [leads.get(name) for leads in columns]
        result.add_row(name, *(lead.in_points() if lead else "-" for lead in found))
    return result


def drift_table(
    title: str,
    runs: Mapping[str, Sequence[Sequence[Mapping[str, Json]]]],
    drifts: Sequence[int],
) -> Table:
    """Lay out the accuracy before and after each drift, a row per method.

    ``runs`` has the lines of `rounds.jsonl` of each seed of a method, ``drifts`` the
    rounds at whose start the data changed.
    """
    result = new_table(title, [f"round {drift}" for drift in drifts])
    for name, seeds in runs.items():
        found = zip(*(measure_recoveries(s, drifts) for s in seeds), strict=True)
        result.add_row(name, *([_recovery(each) for each in found] or [FAILED]))
    return result


BARS = "▁▂▃▄▅▆▇█"
WIDEST = 60
"""Rounds that a curve of text shows one by one; of more, means of neighbours."""


def curve_table(
    title: str, runs: Mapping[str, Sequence[Sequence[Mapping[str, Json]]]]
) -> Table:
    """Draw the accuracy over the rounds as text, a row per method.

    ``runs`` has the lines of `rounds.jsonl` of each seed of a method; a curve is their
    mean. All curves have the same scale, which the heading says.
    """
    curves = {}
    for name, seeds in runs.items():
        tested = [
            [r["accuracy"] for r in s if r["accuracy"] is not None] for s in seeds
        ]
        curves[name] = [fmean(each) for each in zip(*tested, strict=False)]
    every = [value for curve in curves.values() for value in curve]
    low = min(every, default=0.0)
    high = max(every, default=0.0)
    result = new_table(title, [f"{100 * low:.0f} to {100 * high:.0f}"])
    for name, curve in curves.items():
        result.add_row(name, draw(curve, low, high) or FAILED)
    return result


def draw(curve: Sequence[float], low: float, high: float) -> str:
    """Draw a curve as bars of text between two values.

    Examples
    --------
    >>> draw([0.0, 0.5, 1.0, 0.4], 0.0, 1.0)
    '▁▅█▄'
    """
    size = -(-len(curve) // WIDEST) or 1
    means = [fmean(curve[i : i + size]) for i in range(0, len(curve), size)]
    top = len(BARS) - 1
    return "".join(
        BARS[round(top * (value - low) / (high - low)) if high > low else top]
        for value in means
    )


def _recovery(seeds: Sequence[Recovery]) -> str:
    """Write the accuracies of one drift, each a mean over seeds that all have it."""
    columns = zip(*((e.before, e.just_after, e.recovered) for e in seeds), strict=True)
    return " → ".join(mean_and_deviation(each, 100, ".1f") or "-" for each in columns)


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


def cell(entries: Sequence[Score], column: Column) -> str:
    """Return the mean over seeds, or what stands for it if a seed has no number."""
    heading, number, factor, form, missing = column
    numbers = [number(entry) for entry in entries]
    if "round" in heading and len(entries) > 1:
        form = ".1f"  # of a single run they are whole
    ratios = [each for each in numbers if each]
    if heading == SPEEDUP and ratios and len(ratios) == len(numbers):
        return f"{geometric_mean(ratios):{form}}"
    if (mean := mean_and_deviation(numbers, factor, form)) is not None:
        return mean
    return missing if any(_missed(entry, heading) for entry in entries) else "-"


def _missed(entry: Score, heading: str) -> bool:
    """Return whether a run did not reach what a column is about: "never"."""
    if heading.endswith("to recover"):
        return entry.never_recovered
    return entry.target is not None and entry.reached is None
