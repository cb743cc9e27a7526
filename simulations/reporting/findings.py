"""What a comparison found, in a few words: who leads, by how much, at what cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from cfl_flower.analysis.comparison import Rows
from cfl_flower.analysis.leads import Lead, find_leads
from cfl_flower.analysis.tables import mean_and_deviation

BOUNDS = {"local": "which shares nothing", "oracle": "which knows the true clusters"}
"""Methods that others are measured by: they cannot lead, but are named beside."""
MOMENTS = {"final": "at the end", "mean": "on average over the rounds"}
"""The accuracies that a method can lead by."""


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


def costs(rows: Rows) -> Mapping[str, float]:
    """Return the megabytes of the methods that send any, both ways, the least first."""
    sent = {
        name: fmean(each.score.bytes_up + each.score.bytes_down for each in row) / 1e6
        for name, row in rows.items()
    }
    return {
        name: sent[name] for name in sorted(sent, key=sent.__getitem__) if sent[name]
    }


def sentences(rows: Rows) -> Iterator[str]:
    """Yield who leads, by how much, and at what cost, a sentence each, that first.

    The lead is over the next method, with its 95% interval.
    """
    for key, when in MOMENTS.items():
        if winner := find_winner(rows, key):
            yield _say_lead(winner, when)
        if key == "final":
            yield from _say_references(rows)
    rivals = {n: row for n, row in rows.items() if row[0].run.strategy not in BOUNDS}
    sent = {name: _bytes(size) for name, size in costs(rivals).items()}
    if len(set(sent.values())) > 1:
        first, *_, last = sent.values()
        least = [name for name, size in sent.items() if size == first]
        most = [name for name, size in sent.items() if size == last]
        yield f"{_name(least)} sent least, {first}; {_name(most)} sent most, {last}."
    agreed: dict[str, float] = {}
    for name, row in rivals.items():
        known = [each.score.ari for each in row if each.score.ari is not None]
        if len(known) == len(row):
            agreed[name] = fmean(known)
    if any(agreed.values()):
        best = sorted(agreed, key=lambda name: -agreed[name])
        found = [f"{name} {agreed[name]:.2f}" for name in best if agreed[name]]
        yield (
            "Agreement of the clusters with the true ones, as the mean of the adjusted "
            "Rand index over the rounds (1: the same clusters; 0: as by chance): "
            f"{', '.join(found)}."
        )


def _name(methods: Sequence[str]) -> str:
    """Name methods one after the other."""
    *others, last = methods
    return f"{', '.join(others)} and {last}" if others else last


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


def _say_references(rows: Rows) -> Iterator[str]:
    """Say what those have at the end by whom others are measured."""
    found = []
    for name, row in rows.items():
        values = [each.score.final for each in row]
        method = row[0].run.strategy
        what = BOUNDS.get(method)
        # Where no index was measured, no clusters are known to be the true ones.
        known = method != "oracle" or any(each.score.ari is not None for each in row)
        if what and known and None not in values:
            percent = mean_and_deviation(values, 100, ".1f")
            found.append(f"{name}, {what}, has {percent}%")
    if found:
        yield f"Bounds: {'; '.join(found)}."


def _bytes(megabytes: float) -> str:
    """Write a size in a unit that leaves digits of it."""
    small = megabytes < 1
    return f"{1000 * megabytes:.0f} kB" if small else f"{megabytes:.1f} MB"
