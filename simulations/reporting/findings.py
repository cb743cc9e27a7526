"""What a comparison found, in a few words: who leads, by how much, at what cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean

from rich.table import Table

from cfl_flower.analysis.comparison import Rows
from cfl_flower.analysis.leads import find_leads
from cfl_flower.analysis.tables import mean_and_deviation, new_table

BOUNDS = {"local": "which shares nothing", "oracle": "which knows the true clusters"}
"""Methods that others are measured by: they cannot lead, but are named beside."""
MOMENTS = {"final": "At the end", "mean": "Over all rounds"}
"""The accuracies that a method can lead by."""


@dataclass(frozen=True)
class Winner:
    """The most accurate method, and the next."""

    method: str
    percent: str
    """Its accuracy, with several seeds their mean and standard deviation."""
    second: str = ""
    lead: str = ""
    """Over the second, in points, over the seeds that both have."""


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
    lead = leads.get(others[0])
    return Winner(best, percent, others[0], lead.in_points() if lead else "")


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
    """Yield who leads, by how much, and at what cost, a sentence each."""
    for key, when in MOMENTS.items():
        if winner := find_winner(rows, key):
            words = f"{when}, {winner.method} has {winner.percent}% accuracy"
            words += ", the most" if winner.second else ""
            if winner.lead:
                words += f"; its lead over {winner.second}, in points: {winner.lead}"
            yield f"{words}.{_beside(rows, key)}"
    sent = {name: _bytes(size) for name, size in costs(rows).items()}
    if len(set(sent.values())) > 1:
        first, *_, last = sent.values()
        least, most = (
            " and ".join(name for name, size in sent.items() if size == extreme)
            for extreme in (first, last)
        )
        yield (
            f"Of the methods that send models, {least} sent least, {first}; "
            f"{most} sent most, {last}."
        )


def _beside(rows: Rows, key: str) -> str:
    """Say what those have by whom others are measured."""
    found = []
    for name, row in rows.items():
        values = [getattr(each.score, key) for each in row]
        method = row[0].run.strategy
        what = BOUNDS.get(method)
        # Where no index was measured, no clusters are known to be the true ones.
        known = method != "oracle" or any(each.score.ari is not None for each in row)
        if what and known and None not in values:
            percent = mean_and_deviation(values, 100, ".1f")
            found.append(f"{name}, {what}, has {percent}%")
    return f" For reference, {'; '.join(found)}." if found else ""


def _bytes(megabytes: float) -> str:
    """Write a size in a unit that leaves digits of it."""
    small = megabytes < 1
    return f"{1000 * megabytes:.0f} kB" if small else f"{megabytes:.1f} MB"


def overview(found: Iterable[tuple[str, Rows]]) -> Table:
    """Lay out who leads at the end on each stream of data, and at what cost."""
    headings = ("most accurate at the end", "accuracy, %", "lead, in points")
    title = "who leads on which data, and what the methods sent, up and down"
    table = new_table(title, [*headings, "sent, MB", "sent by all, MB"])
    table.columns[0].header = "data"
    for data, rows in found:
        winner = find_winner(rows, "final")
        sent = costs(rows)
        if winner is None:
            continue
        ahead = f"{winner.lead} over {winner.second}" if winner.second else "-"
        sizes = [f"{size:.1f}" for size in sent.values()]
        span = f"{sizes[0]} to {sizes[-1]}" if sizes else "-"
        own = f"{sent.get(winner.method, 0):.1f}"
        table.add_row(data, winner.method, winner.percent, ahead, own, span)
    return table
