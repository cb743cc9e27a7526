"""What the runs of a published table gave, beside its published figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING

from cfl_flower.analysis.drift_metrics import score
from cfl_flower.analysis.leads import Pair, find_leads
from cfl_flower.analysis.reference import REFERENCE_METHOD
from cfl_flower.analysis.tables import mean_and_deviation
from cfl_flower.runs.reading import broken
from simulations.batch.jobs import Job
from simulations.papers.published import Cell, PublishedTable

if TYPE_CHECKING:
    from cfl_flower.analysis.saved import SavedRun

NUMBERS = ("ours", "last ten", "lead", "published", "difference")
HEADER = ("row", "method", *NUMBERS, "verdict")
"""Last ten: the mean accuracy of the last ten tests, beside a final or best one. Lead:
over fedavg in the same row, or over what the figure is relative to, paired by seed; the
methods of a row are tested together."""

NOT_COMPARABLE = "not comparable"
"""Said of runs with another number of rounds than the paper's."""


@dataclass
class Outcome:
    """The results of a cell."""

    values: dict[int, float] = field(default_factory=dict)
    """The figure by seed, of the seeds that finished."""
    last_ten: dict[int, float] = field(default_factory=dict)
    """The mean accuracy of the last ten tests in percent, by seed."""
    reasons: list[str] = field(default_factory=list)
    """Why other seeds failed."""
    never: list[int] = field(default_factory=list)
    """The seeds that never became as good as their reference run."""
    saved: list[SavedRun] = field(default_factory=list)
    """The finished runs that the figures are of."""

    def add(
        self,
        seed: int,
        table: PublishedTable,
        jobs: Sequence[Job],
        reasons: Mapping[str, str],
    ) -> None:
        """Add a seed: its run, and its reference run if it has one."""
        from cfl_flower.analysis.saved import read_finished

        for job in jobs:
            if reason := reasons.get(job.config.output_dir):
                self.reasons.append(f"{job.label} failed: {reason}")
        runs = [run for job in jobs if (run := read_finished(job.config))]
        if len(runs) < len(jobs):
            return
        try:
            value = table.value(*runs)
            tail = score(runs[0].rounds, ()).last_ten
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise broken(jobs[0].folder / "rounds.jsonl", error) from error
        self.saved += runs
        if value is None:
            self.never.append(seed)
            return
        self.values[seed] = value
        if tail is not None and table.is_share and table.against is None:
            self.last_ten[seed] = 100 * tail

    def line(
        self, table: PublishedTable, cell: Cell, lead: str = "-", scale: float = 1.0
    ) -> list[str]:
        """Return the entries of the printed row, in the order of `HEADER`.

        What runs of a part of the rounds gave is not compared.
        """
        form = f".{table.decimals}f"
        published = cell.published
        known = "-" if published is None else f"{published:{form}}"
        if not self.values:
            ours = "never" if self.never else self._why_nothing()
            return [cell.row, cell.method, ours, "-", "-", known, "-", ""]
        ours = mean_and_deviation(list(self.values.values()), 1, form) or "-"
        tail = mean_and_deviation(list(self.last_ten.values()), 1, form) or "-"
        gap = None if published is None else fmean(self.values.values()) - published
        judged = verdict(gap, table.tolerance)
        if scale != 1 and gap is not None:
            gap = None
            judged = NOT_COMPARABLE
        judged += f", without {len(self.never)} never" if self.never else ""
        judged += f", without {len(self.reasons)} failed" if self.reasons else ""
        difference = "-" if gap is None else f"{gap:+{form}}"
        return [cell.row, cell.method, ours, tail, lead, known, difference, judged]

    def _why_nothing(self) -> str:
        """Say whether all runs diverged, where a paper may print chance, or failed."""
        diverged = ["finite" in reason for reason in self.reasons]
        return "collapsed" if diverged and all(diverged) else "failed"

    def pairs(self, table: PublishedTable, reference: Outcome | None) -> list[Pair]:
        """Return shares beside the reference's; a difference is relative already."""
        if not table.is_share or reference is self:
            return []
        if table.against is not None:
            return [(value / 100, 0.0) for value in self.values.values()]
        if reference is None:
            return []
        others = reference.values
        both = sorted(self.values.keys() & others.keys())
        return [(self.values[seed] / 100, others[seed] / 100) for seed in both]


def find_row_leads(
    table: PublishedTable, outcomes: Sequence[tuple[Cell, Outcome]]
) -> dict[tuple[str, str], str]:
    """Return the leads over the reference of the row, in words, by row and method."""
    rows: dict[str, dict[str, Outcome]] = {}
    for cell, outcome in outcomes:
        rows.setdefault(cell.row, {})[cell.method] = outcome
    found = {}
    for row, methods in rows.items():
        reference = methods.get(REFERENCE_METHOD)
        pairs = {name: each.pairs(table, reference) for name, each in methods.items()}
        for name, lead in find_leads(pairs).items():
            found[row, name] = lead.in_points()
    return found


def verdict(gap: float | None, tolerance: float) -> str:
    """Say in a word how a figure compares with the published one.

    Examples
    --------
    >>> verdict(-0.4, 1.5), verdict(3.0, 1.5), verdict(-3.0, 1.5), verdict(None, 1.5)
    ('reproduced', 'above', 'below', 'no published figure')
    """
    if gap is None:
        return "no published figure"
    if abs(gap) <= tolerance:
        return "reproduced"
    return "above" if gap > 0 else "below"


def markdown(rows: Iterable[Sequence[str]], header: Sequence[str] = HEADER) -> str:
    """Lay a table out for a document."""
    rule = ["---:" if name in (*NUMBERS, "seeds") else "---" for name in header]
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, rule, *rows))
