"""Saved runs side by side: one set of tables for all that saw the same data."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from rich import box
from rich.console import Console
from rich.table import Table

from cfl_flower.analysis.drift_metrics import Mark, caught_up, make_mark, score
from cfl_flower.analysis.reference import MARK, find_marks
from cfl_flower.analysis.sweeps import sweep_tables
from cfl_flower.analysis.tables import CLUSTERS, COSTS, drift_table, table
from cfl_flower.config.compose import RunConfig
from cfl_flower.errors import ConfigError
from cfl_flower.runs.differences import differences
from cfl_flower.runs.reading import Finished, read_finished
from cfl_flower.types import Json

DATA = ("dataset", "partition", "drift", "clients", "rounds")
"""The settings that say, with the seed, what every client holds and when."""

MOST_DRIFTS = 6
"""Drifts that are told one by one."""


Runs = Mapping[str, Sequence[Finished]]
"""The seeds of each method, by its label."""


def compare(
    configs: Sequence[RunConfig],
    console: Console,
    reasons: Mapping[str, str] | None = None,
    markdown: bool = False,
) -> None:
    """Print the scorecards of several runs; seeds of one method share a row.

    Runs on different data are in different tables. Where a setting was swept, tables of
    methods by its values follow.

    Parameters
    ----------
    configs : sequence of RunConfig
    console : Console
    reasons : mapping of str to str, optional
        Why runs failed, by their output_dir.
    markdown : bool
        Whether tables are Markdown.

    Raises
    ------
    ConfigError
        If runs of one seed and one description saw different data nevertheless.
    """
    tables: dict[str, list[RunConfig]] = {}
    for config in configs:
        data = [config.resolved[key] for key in DATA]
        tables.setdefault(json.dumps(data, sort_keys=True), []).append(config)
    for group in tables.values():
        _compare(group, console, reasons or {}, markdown)
    for each in sweep_tables(configs):
        if markdown:
            each.box = box.MARKDOWN
        console.print(each)


def _compare(
    configs: Sequence[RunConfig],
    console: Console,
    reasons: Mapping[str, str],
    markdown: bool,
) -> None:
    saved = {config.output_dir: read_finished(config) for config in configs}
    done = {name: run for name, run in saved.items() if run is not None}
    require_same_data({n: (run.config.seed, run.data) for n, run in done.items()})
    groups: dict[str, list[RunConfig]] = {}
    for config in configs:
        groups.setdefault(_method(config), []).append(config)
    labels = _labels([group[0] for group in groups.values()])
    runs: dict[str, list[Finished]] = {}
    failed: list[str] = []
    for label, group in zip(labels, groups.values(), strict=True):
        found = [done[c.output_dir] for c in group if c.output_dir in done]
        some = f" ({len(found)} of {len(group)} seeds)" if len(group) > 1 else ""
        runs[label + some * (0 < len(found) < len(group))] = found
        failed += [
            f"{label} seed {c.seed} failed: {reasons.get(c.output_dir, 'not run')}"
            for c in group
            if c.output_dir not in done
        ]
    for each in make_tables(configs[0], runs, failed):
        if markdown:
            each.box = box.MARKDOWN
        console.print(each)


def make_tables(first: RunConfig, runs: Runs, failed: Sequence[str]) -> list[Table]:
    """Return the tables of methods on the data that the first configuration names.

    Parameters
    ----------
    first : RunConfig
    runs : mapping of str to runs
    failed : sequence of str
        What is said below of runs that are not here.
    """
    every = [run for seeds in runs.values() for run in seeds]
    # Where chance decides when data change, it does so anew for each seed.
    firsts = {config.seed: config for config in (first, *(run.config for run in every))}
    by_seed = {seed: _drifts(config) for seed, config in firsts.items()}
    drifts = by_seed[first.seed]
    alike = all(each == drifts for each in by_seed.values())
    places = find_marks([run.config.resolved for run in every])
    singles = {
        run.config.output_dir: every[place]
        for run, place in zip(every, places, strict=True)
        if place is not None
    }
    marks = {name: make_mark(single.rounds) for name, single in singles.items()}
    scores = {
        label: [
            score(
                run.rounds,
                by_seed[run.config.seed],
                marks.get(run.config.output_dir),
                run.tests,
            )
            for run in seeds
        ]
        for label, seeds in runs.items()
    }
    caption = "\n".join([*_catching_up(runs, singles), *failed])
    title = _title(first, drifts if alike else None)
    found = [table(title, scores, caption=caption)]
    if alike and 1 < len(drifts) <= MOST_DRIFTS:
        what = "accuracy before each drift, in its first round, and at its end, in %"
        lines = {label: [run.rounds for run in seeds] for label, seeds in runs.items()}
        found.append(drift_table(what, lines, drifts))
    found.append(table("cost" + _target(runs, marks), scores, COSTS))
    what = "clusters; churn: clients that change theirs in a round, in %"
    return [*found, table(what, scores, CLUSTERS)]


def _drifts(config: RunConfig) -> list[int]:
    """Return the rounds of a run in which data change."""
    return [round for round in config.timeline.rounds if 1 < round <= config.rounds]


def _title(first: RunConfig, drifts: list[int] | None) -> str:
    when = f" at round{'s' * (len(drifts) > 1)} {_shortened(drifts)}" if drifts else ""
    if drifts is None:
        when = " at each seed's own rounds"
    elif (rounds := first.timeline.rounds) and rounds[0] > first.rounds:
        when = f" (after the last round: it starts at {rounds[0]})"
    return (
        f"{first.names['dataset']}, {first.clients} clients, drift "
        f"{first.names['drift']}{when}, accuracy in %"
    )


def _target(runs: Runs, marks: Mapping[str, Mark | None]) -> str:
    """Say what is to be reached, and against what the methods are timed."""
    targets, units = [], set()
    for seeds in runs.values():
        own = [r.config for r in seeds if r.config.names["strategy"] == MARK]
        known = [mark for each in own if (mark := marks[each.output_dir])]
        if known:
            targets.append(100 * fmean(mark.target for mark in known))
            units |= {"rounds" if m.seconds is None else "device time" for m in known}
    if not targets:
        return ""
    unit = " or ".join(sorted(units))
    if len(targets) == 1:
        return (
            f"; target: {targets[0]:.1f}%, the final accuracy of {MARK}; speed-up: its "
            f"{unit} to stay there over the method's"
        )
    return (
        f"; targets: {min(targets):.1f} to {max(targets):.1f}%, the final accuracy of "
        f"{MARK} with the settings of the row; speed-up: its {unit} to stay there over "
        "the method's"
    )


def require_one_stream(
    configs: Mapping[str, Mapping[str, Json]],
    fingerprints: Mapping[str, str | None],
) -> None:
    """Refuse to put runs on different data side by side.

    Parameters
    ----------
    configs : mapping of str to mappings
        The resolved configuration of each run.
    fingerprints : mapping of str to str or None
        The name of its data (`summary.json`), if known.

    Raises
    ------
    ConfigError
        Says which two, and which setting.
    """
    first, *others = configs
    for other in others:
        for key in DATA:
            pair = configs[first][key], configs[other][key]
            for name, one, two in differences(*pair, key):
                raise ConfigError(
                    f"{first} and {other} are runs on different data "
                    f"({name}: {one} and {two}), which no table can compare; name "
                    "those of one stream"
                )
    require_same_data(
        {name: (config["seed"], fingerprints[name]) for name, config in configs.items()}
    )


def require_same_data(data: Mapping[str, tuple[int, str | None]]) -> None:
    """Refuse runs of one seed whose clients did not hold the same.

    Parameters
    ----------
    data : mapping of str to pairs
        Of each run: its seed, and the name of its data, if known.

    Raises
    ------
    ConfigError

    Examples
    --------
    >>> require_same_data({"a": (0, "x"), "b": (1, "y"), "c": (0, None)})
    """
    known: dict[int, tuple[str, str]] = {}
    for name, (seed, found) in data.items():
        if found is None:
            continue
        other, expected = known.setdefault(seed, (name, found))
        if found != expected:
            raise ConfigError(
                f"{name} and {other} have seed {seed} but different data, so they do "
                "not belong in one table: repeat one of them on the files of the other"
            )


def _method(config: RunConfig) -> str:
    """Name everything about a run but its seed and folder."""
    same = {k: v for k, v in config.resolved.items() if k not in ("seed", "output_dir")}
    return json.dumps(same, sort_keys=True)


def _labels(configs: list[RunConfig]) -> list[str]:
    """Name methods by strategy, else also by their folders, which say what is swept."""
    names = [config.names["strategy"] for config in configs]
    if len(set(names)) == len(names):
        return names
    folders = [Path(config.output_dir).name for config in configs]
    swept = [re.sub(r"(^|-)seed\d+", "", folder) or folder for folder in folders]
    return [with_method(*pair) for pair in zip(names, swept, strict=True)]


def with_method(method: str, folder: str) -> str:
    """Return the name of a folder, with the method before it unless it is there.

    Examples
    --------
    >>> with_method("ifca", "faults.malicious0"), with_method("ifca", "ifca-rounds5")
    ('ifca-faults.malicious0', 'ifca-rounds5')
    """
    return folder if f"{folder}-".startswith(f"{method}-") else f"{method}-{folder}"


def _shortened(drifts: list[int], most: int = MOST_DRIFTS) -> str:
    """List a few rounds, and say how many there are if they are more."""
    some = ", ".join(map(str, drifts[:most]))
    return some if len(drifts) <= most else f"{some}, ... ({len(drifts)} in all)"


def _catching_up(runs: Runs, singles: Mapping[str, Finished]) -> Iterator[str]:
    """Say where the single global model catches up with the clustered ones."""
    if any(len(seeds) > 1 for seeds in runs.values()):
        return
    labels = {seeds[0].config.output_dir: name for name, seeds in runs.items() if seeds}
    lines: dict[str, list[str]] = {}
    for path, name in labels.items():
        single, (run,) = singles.get(path), runs[name]
        if single is None or run.config.names["strategy"] == MARK:
            continue
        since = caught_up(single.rounds, run.rounds)
        level = f"level with {name} from round {since} on"
        found = lines.setdefault(labels[single.config.output_dir], [])
        found.append(level if since else f"below {name} to the end")
    for name, said in lines.items():
        yield f"The single global model ({name}) is " + ", ".join(sorted(said)) + "."
