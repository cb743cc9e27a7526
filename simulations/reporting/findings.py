"""What a comparison found, in a sentence: who leads, and by how much."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

from cfl_flower.analysis.comparison import Rows
from cfl_flower.analysis.leads import Lead, find_leads
from cfl_flower.analysis.tables import mean_and_deviation

BOUNDS = ("local", "oracle")
"""Methods that others are measured by, which cannot lead."""
MOMENTS = {"final": "at the end", "mean": "on average over the rounds"}
"""The accuracies that a method can lead by: the second where the first is unknown."""


@dataclass(frozen=True)
class Winner:
    """The most accurate method, and the next."""

    method: str
    percent: str
    """Its accuracy, with several seeds their mean and standard deviation."""
    second: str = ""
    lead: Lead | None = None
    """Over the second, over the seeds that both have."""


def find_winner(rows: Rows, key: str) -> Winner | None:
    """Return who leads by an accuracy; None unless all runs have it."""
    values = {
        name: {each.run.resolved["seed"]: getattr(each.score, key) for each in row}
        for name, row in rows.items()
        if row[0].run.strategy not in BOUNDS
    }
    if not values or any(None in each.values() for each in values.values()):
        return None
    best, *others = sorted(values, key=lambda name: -fmean(values[name].values()))
    percent = mean_and_deviation(list(values[best].values()), 100, ".1f") or ""
    if not others:
        return Winner(best, percent)
    # The best is chosen among all, so it is tested against all.
    leads = find_leads(
        {
            other: [(one, values[other].get(s)) for s, one in values[best].items()]
            for other in others
        }
    )
    return Winner(best, percent, others[0], leads.get(others[0]))


def finding(rows: Rows) -> str:
    """Say who is the most accurate, and by how much; nothing if nobody can lead.

    The lead is over the next method, with its 95% interval.
    """
    winners = ((find_winner(rows, key), when) for key, when in MOMENTS.items())
    said = (_say_lead(winner, when) for winner, when in winners if winner)
    return next(said, "")


def _say_lead(winner: Winner, when: str) -> str:
    """Say who is the most accurate, how far ahead, and what that is worth."""
    if not winner.second:
        return f"{winner.method} has {winner.percent}% accuracy {when}."
    found = f"{winner.method} is the most accurate {when}, with {winner.percent}%"
    lead = winner.lead
    if lead is None:
        return f"{found}; {winner.second} is next."
    ahead = f"{100 * lead.mean:.1f} points ahead of {winner.second}"
    if lead.half_width is None:
        few = "one seed is" if lead.seeds == 1 else "two seeds are"
        return f"{found}, {ahead}; {few} too few to test that."
    low = 100 * (lead.mean - lead.half_width)
    high = 100 * (lead.mean + lead.half_width)
    interval = f"95% interval {low:.1f} to {high:.1f}"
    if lead.holds:
        return f"{found}, {ahead} ({interval})."
    # The interval is of these two alone; who is best was chosen among all.
    return (
        f"{found}, but not clearly: {ahead} ({interval}; p = {lead.p:.2f} with Holm's "
        "correction for all methods)."
    )
