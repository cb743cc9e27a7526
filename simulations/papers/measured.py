"""What the runs of a published table gave, beside its published figures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from statistics import fmean
from typing import TYPE_CHECKING

from cfl_flower.analysis.baselines import REFERENCE_METHOD
from cfl_flower.analysis.drift_metrics import score
from cfl_flower.analysis.leads import half_width, leads_over
from cfl_flower.runs.lines import unbroken
from cfl_flower.runs.provenance import read_provenance
from cfl_flower.runs.reading import MAY_DIFFER
from cfl_flower.types import Json
from simulations.batch.jobs import Job
from simulations.papers.published import Cell, PublishedTable
from simulations.study import read

if TYPE_CHECKING:
    from cfl_flower.analysis.saved import SavedRun

NUMBERS = ("ours", "last ten", "lead", "published", "difference")
TEXTS = ("row", "method", "verdict")
HEADER = ("row", "method", *NUMBERS, "verdict")
"""Last ten: the mean accuracy of the last ten tests, beside a final or best one. Lead:
over fedavg in the same row, or over what the figure is relative to, paired by seed; the
methods of a row are tested together."""

NOT_COMPARABLE = "not comparable"
"""Said of runs with another number of rounds than the paper's."""


@dataclass
class Outcome:
    """The results of a cell."""

    values: dict[int, float | None] = field(default_factory=dict)
    """The figure by seed, of those that finished; None for one that never became as
    good as its reference run."""
    last_ten: dict[int, float] = field(default_factory=dict)
    """The mean accuracy of the last ten tests in percent, by seed."""
    reasons: list[str] = field(default_factory=list)
    """Why other seeds failed."""
    saved: list[SavedRun] = field(default_factory=list)
    """The finished runs that the figures are of."""

    def runs(self) -> dict[str, Json]:
        """Return what identifies each run, and its final accuracy, by its folder."""
        found = {}
        for run in self.saved:
            entries = read_provenance(run.folder)
            found["/".join(run.folder.parts[-3:])] = {
                "commits": list(dict.fromkeys(str(each["commit"]) for each in entries)),
                "torch": list(dict.fromkeys(e["versions"]["torch"] for e in entries)),
                "settings": digest_of(run.resolved),
                "rounds": len(run.rounds),
                "seconds": run.summary["seconds"],
                "accuracy": run.summary["final"]["accuracy"],
            }
        return found

    @property
    def known(self) -> dict[int, float]:
        """The figures by seed that there are."""
        return {seed: v for seed, v in self.values.items() if v is not None}

    def add(
        self,
        seed: int,
        table: PublishedTable,
        jobs: Sequence[Job],
        reasons: Mapping[str, str],
    ) -> None:
        """Add a seed: its run, and its reference run if it has one."""
        for job in jobs:
            if reason := reasons.get(job.config.output_dir):
                self.reasons.append(f"{job.label} failed: {reason}")
        runs = read(jobs)
        if len(runs) < len(jobs):
            return
        with unbroken(jobs[0].folder / "rounds.jsonl"):
            if not all(map(table.measured, runs)):
                why = f"no round of its {len(runs[0].rounds)} has {table.key}"
                self.reasons.append(f"{jobs[0].label} failed: {why}")
                return
            value = table.value(*runs)
            tails = [score(run.rounds, ())["last_ten"] for run in runs]
        self.saved += runs
        self.values[seed] = value
        shown = value is not None and table.is_share and table.against is None
        if None not in tails and shown:
            self.last_ten[seed] = 100 * fmean(tails)

    def line(
        self, table: PublishedTable, cell: Cell, lead: str = "-", scale: float = 1.0
    ) -> list[str]:
        """Return the entries of the printed row, in the order of `HEADER`.

        What runs of a part of the rounds gave is not compared.
        """
        form = f".{table.decimals}f"
        published = cell.published
        printed = "-" if published is None else f"{published:{form}}"
        known = list(self.known.values())
        if not known:
            ours = "never" if self.values else self._why_nothing()
            return [cell.row, cell.method, ours, "-", "-", printed, "-", ""]
        ours = mean_and_interval(known, form)
        tail = mean_and_interval([*self.last_ten.values()], form)
        gap = None if published is None else fmean(known) - published
        judged = verdict(gap, max(table.tolerance, half_width(known) or 0))
        if scale != 1 and gap is not None:
            gap = None
            judged = NOT_COMPARABLE
        never = len(self.values) - len(known)
        # A worker that died, or a client that diverged: another run may have them.
        lost = sum(len(row["failures"]) for run in self.saved for row in run.rounds)
        lacking = {"never": never, "failed": len(self.reasons), "client results": lost}
        judged += "".join(f", without {n} {what}" for what, n in lacking.items() if n)
        difference = "-" if gap is None else f"{gap:+{form}}"
        return [cell.row, cell.method, ours, tail, lead, printed, difference, judged]

    def _why_nothing(self) -> str:
        """Say whether all runs diverged, where a paper may print chance, or failed."""
        diverged = ["finite" in reason for reason in self.reasons]
        return "collapsed" if diverged and all(diverged) else "failed"


def digest_of(resolved: Mapping[str, Json]) -> str:
    """Return 8 bytes, in hexadecimal, that name the settings behind a run's numbers."""
    settings = {key: resolved[key] for key in sorted({*resolved} - MAY_DIFFER)}
    text = json.dumps([resolved["rounds"], settings], sort_keys=True)
    return blake2b(text.encode(), digest_size=8).hexdigest()


def mean_and_interval(values: Sequence[float], form: str) -> str:
    """Write the mean over seeds ± half its 95% interval, which three or more have.

    Examples
    --------
    >>> mean_and_interval([80.0, 82.0, 81.0], ".1f"), mean_and_interval([80.0], ".1f")
    ('81.0 ± 2.5', '80.0')
    """
    if not values:
        return "-"
    half = half_width(values)
    return f"{fmean(values):{form}}" + ("" if half is None else f" ± {half:{form}}")


Outcomes = Sequence[tuple[Cell, Outcome]]
"""The cells of a table, each with its results."""


def lines(table: PublishedTable, outcomes: Outcomes, scale: float) -> list[list[str]]:
    """Return the rows of a table, each with its lead over the reference of the row."""
    leads = find_row_leads(table, outcomes)
    return [
        outcome.line(table, cell, leads.get((cell.row, cell.method), "-"), scale)
        for cell, outcome in outcomes
    ]


def find_row_leads(
    table: PublishedTable, outcomes: Outcomes
) -> dict[tuple[str, str], str]:
    """Return the leads over the reference of the row, in words, by row and method."""
    rows: dict[str, dict[str, dict[int, float]]] = {}
    for cell, outcome in outcomes:
        shares = {seed: value / 100 for seed, value in outcome.known.items()}
        rows.setdefault(cell.row, {})[cell.method] = shares
    if not table.is_share:
        return {}
    if table.against is not None:
        # A difference is relative already; that of the reference is no lead.
        for values in rows.values():
            seeds = {seed for shares in values.values() for seed in shares}
            values[REFERENCE_METHOD] = dict.fromkeys(seeds, 0.0)
    return {
        (row, name): lead.in_points()
        for row, values in rows.items()
        if REFERENCE_METHOD in values
        for name, lead in leads_over(values, REFERENCE_METHOD).items()
    }


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
