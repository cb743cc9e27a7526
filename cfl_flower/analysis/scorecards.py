"""Columns of scores: which numbers of a method a table has, and how it writes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import geometric_mean
from typing import NamedTuple

from cfl_flower.analysis.drift_metrics import MEASURED, Score, Scores
from cfl_flower.analysis.leads import (
    TESTED,
    find_leads,
    mean_and_deviation,
    say_lead,
)
from cfl_flower.analysis.method_tables import Table, new_table


class Column(NamedTuple):
    """A column of a table: which number of a score it has, and how it is written."""

    heading: str
    key: str
    """Name in a score."""
    factor: float = 100
    form: str = ".1f"
    missing: str = "-"
    """The word for no number."""


NEVER = "never"
"""Stands for the time of what did not happen."""

SPEEDUP = "speed-up to target"
"""The column of ratios, of which seeds have a geometric mean."""

ACCURACIES = (
    Column("before", "before"),
    Column("just after", "just_after"),
    Column("recovered", "recovered"),
    Column("rounds to recover", "rounds_to_recover", 1, ".4g", NEVER),
    Column("final", "final"),
    Column("last ten", "last_ten"),
    Column("best", "best"),
    Column("mean", "mean"),
)

COSTS = (
    Column("at target from round", "reached", 1, ".4g", NEVER),
    Column("device min to target", "seconds_to_reach", 1 / 60, ".0f", NEVER),
    Column(SPEEDUP, "speedup", 1, ".2f", NEVER),
    Column("device min to recover", "seconds_to_recover", 1 / 60, ".0f", NEVER),
    Column("kB to recover", "bytes_to_recover", 1e-3, ".1f", NEVER),
    Column("kB up", "bytes_up", 1e-3),
    Column("kB down", "bytes_down", 1e-3),
    Column("client epochs", "client_epochs", 1, ".0f"),
    Column("target", "target"),
    Column("epsilon", "epsilon", 1, ".3g"),
)

CLUSTERS = (
    Column("clusters", "clusters", 1),
    Column("ARI", "ari", 1, ".2f"),
    Column("class ARI", "class_ari", 1, ".2f"),
    Column("churn", "churn"),
)

WORST = (
    Column("worst client", "worst"),
    Column("clients better alone", "better_alone"),
)
"""Columns on single clients, before those of each."""

FAILURES = (
    Column("failed trainings", "failed_trainings_share"),
    Column("failed tests", "failed_tests_share"),
)
"""Columns of a comparison in which anything failed."""


MEASURES = tuple(
    Column(heading, name)
    for name, heading in {**MEASURED, "forgetting": "forgetting"}.items()
)

COMPARED = {*ACCURACIES, *MEASURES}
"""The columns of which the best is told."""

LED = tuple(
    each for each in ACCURACIES if each.heading in ("final", "last ten", "mean")
)
"""The accuracies that leads are of."""


def score_table(
    title: str,
    scores: Scores,
    columns: Sequence[Column] = ACCURACIES,
    caption: str = "",
) -> Table:
    """Lay the scores of each method's seeds out as one table, a row per method.

    Several seeds give their mean and standard deviation. A column without any number is
    left out; the caption names those of what was never reached.
    """
    done = [entries for entries in scores.values() if entries]
    found = {each: {cell(entries, each) for entries in done} for each in columns}
    empty = ({"-"}, {NEVER})
    shown = [each for each in columns if not done or found[each] not in empty]
    never = [each.heading for each in columns if found[each] == {NEVER}]
    if never:
        caption = f"{caption}\n{NEVER}, of all methods: {', '.join(never)}".strip()
    cells = {
        name: [cell(entries, column) for column in shown] if entries else []
        for name, entries in scores.items()
    }
    numbers = {
        each.heading: {
            name: {entry["seed"]: entry.get(each.key) for entry in entries}
            for name, entries in scores.items()
        }
        for each in shown
        if each in COMPARED
    }
    made = new_table(title, [each.heading for each in shown], cells, caption)
    return replace(made, numbers=numbers)


def lead_tables(scores: Scores, reference: str) -> list[Table]:
    """Lay out leads over a reference method, a row per method, with several seeds."""
    pairs = {
        name: [(entry, entry["rival"]) for entry in entries if entry["rival"]]
        for name, entries in scores.items()
    }
    pairs = {name: each for name, each in pairs.items() if each}
    if max(map(len, pairs.values()), default=0) < 2:
        return []
    columns = [
        find_leads(
            {
                name: [(one.get(led.key), other.get(led.key)) for one, other in each]
                for name, each in pairs.items()
            }
        )
        for led in LED
    ]
    rows = {name: [say_lead(leads.get(name)) for leads in columns] for name in pairs}
    title = f"lead over {reference}, in points"
    return [new_table(title, [led.heading for led in LED], rows, TESTED)]


def cell(entries: Sequence[Score], column: Column) -> str:
    """Return the mean over seeds, or what stands for it if a seed has no number."""
    heading, _, factor, form, missing = column
    numbers = [entry.get(column.key) for entry in entries]
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
        return bool(entry["never_recovered"])
    return entry["target"] is not None and entry["reached"] is None
