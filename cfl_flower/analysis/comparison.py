"""Saved runs side by side: one set of tables for all runs on the same data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from cfl_flower.analysis.baselines import REFERENCE_METHOD, find_reference_runs
from cfl_flower.analysis.drift_metrics import (
    Score,
    Scores,
    forgetting,
    last_accuracies,
    mean_of_known,
    score,
)
from cfl_flower.analysis.idle import find_idle
from cfl_flower.analysis.method_tables import Table
from cfl_flower.analysis.saved import SavedRun, read_finished
from cfl_flower.analysis.scorecards import (
    ACCURACIES,
    CLUSTERS,
    COSTS,
    FAILURES,
    MEASURES,
    WORST,
    Column,
    lead_tables,
    score_table,
)
from cfl_flower.analysis.sweeps import name_methods, name_settings, sweep_tables
from cfl_flower.errors import ConfigError
from cfl_flower.run_config import RunConfig
from cfl_flower.runs.console import fitting

DATA = ("dataset", "partition", "drift", "clients", "rounds")
"""The settings that determine, with the seed, the data of every client and round."""

OWN_MODEL = "local"
"""The method whose clients train alone."""

CLIENT = "client "
"""How the name of a number of one client begins."""

MOST_CLIENTS = 12
"""Devices with names up to which each has a column."""

MOST_DRIFTS = 6
"""Drifts that are listed one by one."""

Runs = Mapping[str, Sequence[SavedRun]]
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
    return SavedRun(Path(config.output_dir), [], config.resolved, (), ())


def _tables_of_one_stream(
    runs: Sequence[SavedRun], reasons: Mapping[str, str], reference: str
) -> list[Table]:
    found: dict[str, list[SavedRun]] = {}
    failed: list[str] = []
    for label, seeds in group_seeds(runs).items():
        found[label] = [run for run in seeds if run.rounds]
        failed += [
            f"{label} seed {run.resolved['seed']} failed: "
            f"{reasons.get(run.resolved['output_dir'], 'not run')}"
            for run in seeds
            if not run.rounds
        ]
    scores = score_runs(found, reference)
    heading = describe(next(filter(lambda run: run.rounds, runs), runs[0]))
    return make_tables(heading, found, scores, reference, failed)


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

    The label has all settings in which any two of the runs differ.

    A run that was continued has the settings of one that was not. Of a seed that a
    method has twice, the run with the most rounds counts.
    """
    groups: dict[str, dict[int, SavedRun]] = {}
    for run, *names in zip(runs, name_methods(runs), name_settings(runs), strict=True):
        seeds = groups.setdefault(" ".join(names).rstrip(), {})
        seed = int(run.resolved["seed"])
        if len(run.rounds) > len(seeds.setdefault(seed, run).rounds):
            seeds[seed] = run
    return {
        label: [seeds[seed] for seed in sorted(seeds)]
        for label, seeds in groups.items()
    }


def score_runs(runs: Runs, reference: str = REFERENCE_METHOD) -> Scores:
    """Score runs beside those of their seed and settings that they are measured by.

    The time to beat is that of the single global model. Each score has its ``seed``,
    and as ``rival`` the score of the method ``reference``, None for one of its own.
    """
    every = [run for seeds in runs.values() for run in seeds]
    settings = [run.resolved for run in every]
    singles = find_reference_runs(settings)
    rivals = find_reference_runs(settings, reference)
    alone = find_reference_runs(settings, OWN_MODEL)
    found: list[Score] = []
    for run, single, local in zip(every, singles, alone, strict=True):
        goal = () if single is None else every[single].rounds
        ahead = int(run.resolved["evaluation"] == "prequential")
        drifts = [each - ahead for each in run.changes]
        own = score(run.rounds, drifts, goal, run.tests, ahead)
        if "forgetting" in run.resolved["metrics"] and not run.on_own_data:
            own["forgetting"] = forgetting(run.tests, run.tested_concepts())
        own |= _of_clients(run, None if local is None else every[local])
        found.append({"seed": int(run.resolved["seed"]), **own})
    for place, rival in enumerate(rivals):
        found[place]["rival"] = None if rival in (None, place) else found[rival]
    left = iter(found)
    return {label: [next(left) for _ in seeds] for label, seeds in runs.items()}


def _of_clients(run: SavedRun, alone: SavedRun | None) -> dict[str, float | None]:
    """Return the last test of the worst client, and of each that has a name.

    Also the share of clients with a lower accuracy than with a model of their own.
    """
    last = last_accuracies(run.tests)
    own = last_accuracies(alone.tests) if alone not in (None, run) else {}
    worse = [last[client] < own[client] for client in last.keys() & own.keys()]
    # Client 3 of a simulation is another one with each seed.
    sites = {name: last[name] for name in last if isinstance(name, str)}
    few = sites if len(sites) <= MOST_CLIENTS else {}
    return {
        "worst": min(last.values(), default=None),
        "better_alone": mean_of_known(worse),
        **{f"{CLIENT}{client}": accuracy for client, accuracy in few.items()},
    }


def make_tables(
    heading: str, runs: Runs, scores: Scores, reference: str, failed: Sequence[str] = ()
) -> list[Table]:
    """Return the tables of methods on one stream of data, which the heading names.

    ``failed`` are lines of the caption on runs that failed.
    """
    # A drift of random rounds has others for each seed.
    changes = {tuple(run.drifts) for seeds in runs.values() for run in seeds}
    when = _when(next(iter(changes), ())) if len(changes) < 2 else OWN_ROUNDS
    failures = find_failures(scores)
    lines = [*find_idle(runs), *failures, *find_missing_seeds(scores), *failed]
    caption = "\n".join(lines)
    title = f"{heading}{when}, accuracy in %"
    columns = (*ACCURACIES, *FAILURES) if failures else ACCURACIES
    found = [
        score_table(title, scores, columns, caption),
        *lead_tables(scores, reference),
    ]
    every = [each for row in scores.values() for each in row]
    if any(each.get(of.key) is not None for of in MEASURES for each in every):
        what = "measures in %, means over the last ten tested rounds"
        found.append(score_table(what, scores, MEASURES))
    aims = any(each["target"] is not None for each in every)
    found.append(score_table("cost", scores, COSTS, TARGET if aims else ""))
    what = "clusters; churn: clients that change theirs in a round, in %"
    found.append(score_table(what, scores, CLUSTERS))
    names = dict.fromkeys(key for each in every for key in each if CLIENT in key)
    single = [*WORST, *(Column(name, name) for name in names)]
    return [*found, score_table("clients' last accuracy in %", scores, single)]


def find_failures(scores: Scores) -> list[str]:
    """Say of each method with failures how many of its trainings and tests failed."""
    found = []
    for label, row in scores.items():
        words = []
        for what, count in (("trainings", "trainings"), ("tests", "tested")):
            failed = sum(each[f"failed_{what}"] for each in row)
            total = sum(each[count] for each in row)
            if failed:
                share = failed / max(total, failed)
                words.append(f"{failed} of {total} {what} ({share:.0%})")
        if words:
            found.append(f"{label}: failed {' and '.join(words)}")
    return found


def find_missing_seeds(scores: Scores) -> list[str]:
    """Say which methods lack seeds that others have: their means do not compare."""
    every = {each["seed"] for row in scores.values() for each in row}
    return [
        f"{label}: {len(row)} of {len(every)} seeds"
        for label, row in scores.items()
        if 0 < len(row) < len(every)
    ]


OWN_ROUNDS = " at each seed's own rounds"
TARGET = (
    f"target: the final accuracy of {REFERENCE_METHOD}, in %; speed-up: its time, "
    "or rounds, until it stays there, divided by the method's"
)


def describe(run: SavedRun) -> str:
    """Name the data of a comparison by one of its runs."""
    settings = run.resolved
    first = next(iter(run.changes), 0)
    late = first > settings["rounds"]
    when = f" (after the last round: it starts at {first})" if late else ""
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
                "of the other, or seed what a part of yours draws"
            )
