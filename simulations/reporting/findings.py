"""What a comparison found, in a sentence: who leads, and by how much."""

from __future__ import annotations

from statistics import fmean

from cfl_flower.analysis.baselines import BOUND
from cfl_flower.analysis.drift_metrics import Scores
from cfl_flower.analysis.leads import Lead, leads_over, mean_and_deviation

BOUNDS = ("local", "local_rounds", BOUND)
"""Methods that others are measured by, which cannot lead."""
MOMENTS = {"final": "at the end", "mean": "on average over the rounds"}
"""The accuracies that a method can lead by: the second where the first is unknown."""


def finding(scores: Scores) -> str:
    """Say who is the most accurate, and by how much; nothing if nobody can lead.

    The lead is over the next method, with its 95% interval. All runs have the accuracy
    that is told.
    """
    rivals = {k: row for k, row in scores.items() if k.partition(" ")[0] not in BOUNDS}
    seeds = [{each["seed"] for each in row} for row in rivals.values()]
    # Another seed is another task, which may be an easier one.
    common = set.intersection(*seeds) if seeds else set()
    some = " with the seeds that all have" if common < set().union(*seeds) else ""
    for key, when in MOMENTS.items():
        values = {
            name: {each["seed"]: each[key] for each in row if each["seed"] in common}
            for name, row in rivals.items()
        }
        if not common or any(None in each.values() for each in values.values()):
            continue
        best, *others = sorted(values, key=lambda name: -fmean(values[name].values()))
        percent = mean_and_deviation(list(values[best].values()), 100, ".1f")
        if not others:
            return f"{best} has {percent}% accuracy {when}{some}."
        found = f"{best} is the most accurate {when}{some}, with {percent}%"
        # The best is chosen among all, so it is tested against all.
        leads = leads_over(values, best)
        return found + _say_lead(others[0], leads.get(others[0]))
    return ""


def _say_lead(second: str, behind: Lead | None) -> str:
    """Say how far a method is behind the best, and what that is worth."""
    if behind is None:
        return f"; {second} is next."
    ahead = f"{-100 * behind.mean:z.1f} points ahead of {second}"
    if behind.half_width is None:
        few = "one seed is" if behind.seeds == 1 else "two seeds are"
        return f", {ahead}; {few} too few to test that."
    low = 100 * (-behind.mean - behind.half_width)
    high = 100 * (-behind.mean + behind.half_width)
    interval = f"95% interval {low:.1f} to {high:.1f}"
    if behind.holds:
        return f", {ahead} ({interval})."
    # The interval is of these two alone; who is best was chosen among all.
    return (
        f", but not clearly: {ahead} ({interval}; p = {behind.p:.2f} with Holm's "
        "correction for all methods)."
    )
