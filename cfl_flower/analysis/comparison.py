"""Saved runs side by side: one set of tables for all runs on the same data."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean

from rich.console import Console
from rich.markup import escape

from cfl_flower.analysis.baselines import REFERENCE_METHOD, find_reference_runs
from cfl_flower.analysis.drift_metrics import (
    Reference,
    Score,
    forgetting,
    make_reference,
    score,
)
from cfl_flower.analysis.idle import find_idle
from cfl_flower.analysis.saved import SavedRun, read_finished
from cfl_flower.analysis.scorecards import (
    ACCURACIES,
    CLUSTERS,
    COSTS,
    FAILURES,
    MEASURES,
    Table,
    drift_table,
    lead_table,
    score_table,
)
from cfl_flower.analysis.sweeps import sweep_tables
from cfl_flower.data.worlds.stream import say_share
from cfl_flower.errors import ConfigError
from cfl_flower.run_config import RunConfig
from cfl_flower.runs.console import fitting

DATA = ("dataset", "partition", "drift", "clients", "rounds")
"""The settings that determine, with the seed, the data of every client and round."""

MOST_DRIFTS = 6
"""Drifts that are listed one by one."""


@dataclass(eq=False)
class Compared:
    """A run beside the runs of its seed and settings that it is measured by."""

    run: SavedRun
    single: Compared | None = field(default=None, repr=False)
    """The single global model; itself if it is one."""
    rival: Compared | None = field(default=None, repr=False)
    """The run that its lead is over; itself if it is one."""

    @cached_property
    def reference(self) -> Reference | None:
        """The accuracy to reach and the time to beat."""
        return None if self.single is None else make_reference(self.single.run.rounds)

    @cached_property
    def score(self) -> Score:
        """The run in numbers."""
        run = self.run
        found = score(run.rounds, run.tested_drifts, self.reference, run.tests)
        if "forgetting" not in run.resolved["metrics"] or run.on_own_data:
            return found
        forgot = forgetting(run.tests, run.tested_concepts())
        return {**found, "forgetting": forgot}


Rows = Mapping[str, Sequence[Compared]]
"""The seeds of each method, by its label."""


def compare(
    configs: Sequence[RunConfig],
    console: Console,
    reasons: Mapping[str, str] | None = None,
    markdown: bool = False,
    reference: str = REFERENCE_METHOD,
) -> None:
    """Print the scorecards of several runs; seeds of one method share a row.

    Runs on different data are in different tables. Where a setting was swept, tables of
    methods by its values follow. Raises `ConfigError` if runs of one seed and one data
    configuration saw different data nevertheless. ``reasons`` say why runs failed, by
    their output_dir; leads are over the method ``reference``.
    """
    runs = [read_finished(each) or _without_rounds(each) for each in configs]
    tables = [
        each
        for some in by_stream(runs).values()
        for each in _tables_of_one_stream(some, reasons or {}, reference)
    ]
    for table in [*tables, *sweep_tables(runs)]:
        drawn = table.draw()
        notes = [drawn.caption] if drawn.caption else []
        pieces = ["", escape(table.markdown()), ""] if markdown else None
        shown = pieces or fitting(drawn, console.width)
        console.print(drawn.title, *shown, *notes, "", sep="\n", soft_wrap=markdown)


def _without_rounds(config: RunConfig) -> SavedRun:
    """Return a run that is not finished, of which nothing counts."""
    folder = Path(config.output_dir)
    timeline = config.timeline
    return SavedRun(folder, [], config.resolved, (), (), composed=timeline)


def _tables_of_one_stream(
    runs: Sequence[SavedRun], reasons: Mapping[str, str], reference: str
) -> list[Table]:
    found: dict[str, list[SavedRun]] = {}
    failed: list[str] = []
    for label, seeds in group_seeds(runs).items():
        done = [run for run in seeds if run.rounds]
        part = 0 < len(done) < len(seeds)
        name = f"{label} ({len(done)} of {len(seeds)} seeds)" if part else label
        found[name] = done
        failed += [
            f"{label} seed {run.resolved['seed']} failed: "
            f"{reasons.get(run.resolved['output_dir'], 'not run')}"
            for run in seeds
            if not run.rounds
        ]
    rows = with_references(found, reference)
    return make_tables(_heading(runs[0]), rows, failed)


def by_stream(runs: Sequence[SavedRun]) -> dict[str, list[SavedRun]]:
    """Divide runs by the data that they saw.

    Raises `ConfigError` if clients of one seed did not hold the same.
    """
    found: dict[str, list[SavedRun]] = {}
    for run in runs:
        data = json.dumps([run.resolved[key] for key in DATA], sort_keys=True)
        found.setdefault(data, []).append(run)
    for some in found.values():
        _require_same_data(some)
    return found


def group_seeds(runs: Sequence[SavedRun]) -> dict[str, list[SavedRun]]:
    """Return the runs of each method, which differ in their seed alone, by its label.

    A run that was continued has the settings of one that was not. Of a seed that a
    method has twice, the run with the most rounds counts.
    """
    own = ("seed", "output_dir", "resume")
    groups: dict[str, dict[int, SavedRun]] = {}
    for run in runs:
        shared = {key: each for key, each in run.resolved.items() if key not in own}
        seeds = groups.setdefault(json.dumps(shared, sort_keys=True), {})
        earlier = seeds.setdefault(int(run.resolved["seed"]), run)
        if len(run.rounds) > len(earlier.rounds):
            seeds[int(run.resolved["seed"])] = run
    firsts = [next(iter(seeds.values())) for seeds in groups.values()]
    names = name_methods([(run.strategy, run.folder.name) for run in firsts])
    if len(set(names)) < len(names):
        names = [f"{name} {number}" for number, name in enumerate(names, 1)]
    return {
        name: [seeds[seed] for seed in sorted(seeds)]
        for name, seeds in zip(names, groups.values(), strict=True)
    }


def with_references(
    runs: Mapping[str, Sequence[SavedRun]], reference: str = REFERENCE_METHOD
) -> dict[str, list[Compared]]:
    """Put beside each run those of its seed and settings that it is measured by.

    The single global model, and the run of the method that leads are over.
    """
    found = {label: [Compared(run) for run in seeds] for label, seeds in runs.items()}
    every = [each for row in found.values() for each in row]
    settings = [each.run.resolved for each in every]
    singles = find_reference_runs(settings)
    rivals = find_reference_runs(settings, reference)
    for each, single, rival in zip(every, singles, rivals, strict=True):
        each.single = None if single is None else every[single]
        each.rival = None if rival is None else every[rival]
    return found


def make_tables(heading: str, rows: Rows, failed: Sequence[str] = ()) -> list[Table]:
    """Return the tables of methods on one stream of data, which the heading names.

    ``failed`` are lines of the caption on runs that failed.
    """
    # A drift of random rounds has others for each seed.
    every = [each for row in rows.values() for each in row]
    changes = {tuple(each.run.drifts) for each in every}
    drifts = next(iter(changes)) if len(changes) == 1 else ()
    when = _when(drifts) if len(changes) < 2 else " at each seed's own rounds"
    scores = {
        label: {int(each.run.resolved["seed"]): each.score for each in row}
        for label, row in rows.items()
    }
    failures = find_failures(rows)
    runs = {label: [each.run for each in row] for label, row in rows.items()}
    idle = find_idle(runs)
    notes = [*idle, *find_share(rows), *failures, *failed]
    caption = "\n".join(notes)
    title = f"{heading}{when}, accuracy in %"
    columns = (*ACCURACIES, *FAILURES) if failures else ACCURACIES
    found = [score_table(title, scores, columns, caption), *_leads(rows)]
    tested = {tuple(each.run.tested_drifts) for each in every}
    if 1 < len(drifts) <= MOST_DRIFTS and len(tested) == 1:
        what = "accuracy before each drift, in its first round, and at its end, in %"
        lines = {label: [run.rounds for run in row] for label, row in runs.items()}
        found.append(drift_table(what, lines, *tested))
    if any(column.key in each.score for column in MEASURES for each in every):
        what = "measures in %, means over the last ten tested rounds"
        found.append(score_table(what, scores, MEASURES))
    found.append(score_table("cost" + _target(rows), scores, COSTS))
    what = "clusters; churn: clients that change theirs in a round, in %"
    return [*found, score_table(what, scores, CLUSTERS)]


def find_share(rows: Rows) -> list[str]:
    """Say what share of the samples these runs are of, if it is not all of them."""
    runs = [each.run for row in rows.values() for each in row]
    shares = [run.arriving for run in runs if run.arriving is not None]
    smallest = min(shares, default=1.0)
    return [say_share(smallest, len(runs[0].rounds))] if smallest < 1 else []


def find_failures(rows: Rows) -> list[str]:
    """Say of each method with failures how many of its trainings and tests failed."""
    found = []
    for label, row in rows.items():
        scores = [each.score for each in row]
        trainings = sum(each["trainings"] for each in scores)
        tested = sum(each["tested"] for each in scores)
        pairs = {
            "trainings": (sum(each["failed_trainings"] for each in scores), trainings),
            "tests": (sum(each["failed_tests"] for each in scores), tested),
        }
        words = [
            f"{failed} of {total} {what} ({failed / max(total, failed):.0%})"
            for what, (failed, total) in pairs.items()
            if failed
        ]
        if words:
            found.append(f"{label}: failed {' and '.join(words)}")
    return found


def _leads(rows: Rows) -> list[Table]:
    """Return the table of leads over the reference, with several seeds."""
    pairs = {
        label: [
            (each.score, each.rival.score)
            for each in row
            if each.rival is not None and each.rival is not each
        ]
        for label, row in rows.items()
    }
    if max(map(len, pairs.values()), default=0) < 2:
        return []
    rivals = (each.rival.run for row in rows.values() for each in row if each.rival)
    title = f"lead over {next(rivals).resolved['strategy']['name']}, in points"
    return [lead_table(title, {name: each for name, each in pairs.items() if each})]


def _heading(first: SavedRun) -> str:
    """Name the data of a comparison by its first run."""
    settings = first.resolved
    changes = first.timeline.changes
    late = bool(changes) and changes[0] > settings["rounds"]
    when = f" (after the last round: it starts at {changes[0]})" if late else ""
    dataset = settings["dataset"]["name"]
    drift = settings["drift"]["name"]
    return f"{dataset}, {settings['clients']} clients, drift {drift}{when}"


def _when(drifts: Sequence[int]) -> str:
    if not drifts:
        return ""
    some = ", ".join(map(str, drifts[:MOST_DRIFTS]))
    more = f", ... ({len(drifts)} in all)" if len(drifts) > MOST_DRIFTS else ""
    noun = "rounds" if len(drifts) > 1 else "round"
    return f" at {noun} {some}{more}"


def _target(rows: Rows) -> str:
    """Describe the target accuracy, and what the speed-up is relative to."""
    targets = []
    units = set()
    for row in rows.values():
        own = [each.reference for each in row if each.single is each]
        if known := [each for each in own if each]:
            targets.append(100 * fmean(each.target for each in known))
            units |= {"rounds" if e.seconds is None else "device time" for e in known}
    if not targets:
        return ""
    unit = " or ".join(sorted(units))
    speedup = f"speed-up: its {unit} until it stays there, divided by the method's"
    final = f"the final accuracy of {REFERENCE_METHOD}"
    if len(targets) == 1:
        return f"; target: {targets[0]:.1f}%, {final}; {speedup}"
    span = f"{min(targets):.1f} to {max(targets):.1f}%"
    return f"; targets: {span}, {final} with the settings of the row; {speedup}"


def _require_same_data(runs: Sequence[SavedRun]) -> None:
    """Refuse runs of one seed whose clients did not hold the same, where it is known.

    Raises `ConfigError`.
    """
    first: dict[int, SavedRun] = {}
    for run in runs:
        if run.data is None:
            continue
        seed = run.resolved["seed"]
        other = first.setdefault(seed, run)
        if run.data != other.data:
            raise ConfigError(
                f"{run.folder} and {other.folder} have seed {seed} but different data, "
                "so they do not belong in one table: repeat one of them on the files "
                "of the other"
            )


def name_methods(runs: Sequence[tuple[str, str]]) -> list[str]:
    """Name methods by strategy, else also by their folders, which name the sweep.

    Examples
    --------
    >>> name_methods([("ifca", "ifca-seed0"), ("fesem", "fesem-seed0")])
    ['ifca', 'fesem']
    >>> name_methods([("ifca", "rounds5-seed0"), ("ifca", "rounds9-seed0")])
    ['ifca-rounds5', 'ifca-rounds9']
    >>> name_methods([("ifca", "seed0-ifca-rounds5"), ("ifca", "seed0-ifca-rounds9")])
    ['ifca-rounds5', 'ifca-rounds9']
    """
    names = [strategy for strategy, _ in runs]
    if len(set(names)) == len(names):
        return names
    bare = [re.sub(r"(^|-)seed\d+", "", folder).strip("-") for _, folder in runs]
    swept = [name or folder for name, (_, folder) in zip(bare, runs, strict=True)]
    return [with_method(*pair) for pair in zip(names, swept, strict=True)]


def with_method(method: str, folder: str) -> str:
    """Return the name of a folder, with the method before it unless it is there.

    Examples
    --------
    >>> with_method("ifca", "faults.malicious0"), with_method("ifca", "ifca-rounds5")
    ('ifca-faults.malicious0', 'ifca-rounds5')
    """
    return folder if f"{folder}-".startswith(f"{method}-") else f"{method}-{folder}"
