"""Saved runs side by side: one set of tables for all runs on the same data."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from statistics import fmean

from rich import box
from rich.console import Console
from rich.table import Table

from cfl_flower.analysis.drift_metrics import (
    Reference,
    Score,
    caught_up,
    make_reference,
    score,
)
from cfl_flower.analysis.reference import REFERENCE_METHOD, find_reference_runs
from cfl_flower.analysis.sweeps import sweep_tables
from cfl_flower.analysis.tables import (
    CLUSTERS,
    COSTS,
    drift_table,
    lead_table,
    table,
)
from cfl_flower.config.compose import RunConfig
from cfl_flower.errors import ConfigError
from cfl_flower.runs.reading import Finished, differences, read_finished
from cfl_flower.types import Json

DATA = ("dataset", "partition", "drift", "clients", "rounds")
"""The settings that determine, with the seed, the data of every client and round."""

MOST_DRIFTS = 6
"""Drifts that are listed one by one."""

Runs = Mapping[str, Sequence[Finished]]
"""The seeds of each method, by its label."""


@dataclass(frozen=True)
class Compared:
    """A finished run beside the single global model of its seed and settings."""

    run: Finished
    drifts: list[int]
    """The rounds in which its data change."""
    single: Finished | None
    """Itself if it is one."""

    @cached_property
    def reference(self) -> Reference | None:
        """The accuracy to reach and the time to beat."""
        return None if self.single is None else make_reference(self.single.rounds)

    @cached_property
    def score(self) -> Score:
        """The run in numbers."""
        return score(self.run.rounds, self.drifts, self.reference, self.run.tests)


Rows = Mapping[str, Sequence[Compared]]
"""As `Runs`."""


def compare(
    configs: Sequence[RunConfig],
    console: Console,
    reasons: Mapping[str, str] | None = None,
    markdown: bool = False,
) -> None:
    """Print the scorecards of several runs; seeds of one method share a row.

    Runs on different data are in different tables. Where a setting was swept, tables of
    methods by its values follow. Raises `ConfigError` if runs of one seed and one data
    configuration saw different data nevertheless. ``reasons`` say why runs failed, by
    their output_dir.
    """
    streams: dict[str, list[RunConfig]] = {}
    for config in configs:
        data = [config.resolved[key] for key in DATA]
        streams.setdefault(json.dumps(data, sort_keys=True), []).append(config)
    found = [_tables_of_one_stream(each, reasons or {}) for each in streams.values()]
    for each in [*chain.from_iterable(found), *sweep_tables(configs)]:
        if markdown:
            each.box = box.MARKDOWN
        console.print(each)


def _tables_of_one_stream(
    configs: Sequence[RunConfig], reasons: Mapping[str, str]
) -> list[Table]:
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
    return make_tables(configs[0], runs, failed)


def make_tables(first: RunConfig, runs: Runs, failed: Sequence[str]) -> list[Table]:
    """Return the tables of methods on the data of the first configuration.

    ``failed`` are lines of the caption on runs that failed.
    """
    every = [run for seeds in runs.values() for run in seeds]
    # A drift of random rounds has others for each seed.
    firsts = {config.seed: config for config in (first, *(run.config for run in every))}
    by_seed = {seed: _drifts(config) for seed, config in firsts.items()}
    drifts = by_seed[first.seed]
    alike = all(each == drifts for each in by_seed.values())
    places = find_reference_runs([run.config.resolved for run in every])
    singles = {
        run.config.output_dir: every[place]
        for run, place in zip(every, places, strict=True)
        if place is not None
    }
    rows = {
        label: [
            Compared(run, by_seed[run.config.seed], singles.get(run.config.output_dir))
            for run in seeds
        ]
        for label, seeds in runs.items()
    }
    scores = {label: [each.score for each in row] for label, row in rows.items()}
    caption = "\n".join([*_catching_up(rows), *failed])
    title = _title(first, drifts if alike else None)
    found = [table(title, scores, caption=caption), *_leads(rows)]
    if alike and 1 < len(drifts) <= MOST_DRIFTS:
        what = "accuracy before each drift, in its first round, and at its end, in %"
        lines = {label: [run.rounds for run in seeds] for label, seeds in runs.items()}
        found.append(drift_table(what, lines, drifts))
    found.append(table("cost" + _target(rows), scores, COSTS))
    what = "clusters; churn: clients that change theirs in a round, in %"
    return [*found, table(what, scores, CLUSTERS)]


def _leads(rows: Rows) -> list[Table]:
    """Return the table of leads over the single global model, with several seeds."""
    scores = {
        each.run.config.output_dir: each.score for row in rows.values() for each in row
    }
    pairs = {
        label: [
            (each.score, scores[each.single.config.output_dir])
            for each in row
            if each.single and each.single is not each.run
        ]
        for label, row in rows.items()
    }
    if max(map(len, pairs.values()), default=0) < 2:
        return []
    title = (
        f"lead over {REFERENCE_METHOD}, in points, paired by seed, ± its standard "
        "error (no lead: within two of them)"
    )
    return [lead_table(title, {name: each for name, each in pairs.items() if each})]


def _drifts(config: RunConfig) -> list[int]:
    """Return the rounds of a run in which data change."""
    return [round for round in config.timeline.rounds if 1 < round <= config.rounds]


def _title(first: RunConfig, drifts: list[int] | None) -> str:
    when = ""
    if drifts is None:
        when = " at each seed's own rounds"
    elif drifts:
        some = ", ".join(map(str, drifts[:MOST_DRIFTS]))
        more = f", ... ({len(drifts)} in all)" if len(drifts) > MOST_DRIFTS else ""
        when = f" at round{'s' * (len(drifts) > 1)} {some}{more}"
    elif (rounds := first.timeline.rounds) and rounds[0] > first.rounds:
        when = f" (after the last round: it starts at {rounds[0]})"
    return (
        f"{first.names['dataset']}, {first.clients} clients, drift "
        f"{first.names['drift']}{when}, accuracy in %"
    )


def _target(rows: Rows) -> str:
    """Describe the target accuracy, and what the speed-up is relative to."""
    targets, units = [], set()
    for row in rows.values():
        own = [each.reference for each in row if each.single is each.run]
        if known := [each for each in own if each]:
            targets.append(100 * fmean(each.target for each in known))
            units |= {"rounds" if e.seconds is None else "device time" for e in known}
    if not targets:
        return ""
    unit = " or ".join(sorted(units))
    speedup = f"speed-up: its {unit} to stay there over the method's"
    final = f"the final accuracy of {REFERENCE_METHOD}"
    if len(targets) == 1:
        return f"; target: {targets[0]:.1f}%, {final}; {speedup}"
    span = f"{min(targets):.1f} to {max(targets):.1f}%"
    return f"; targets: {span}, {final} with the settings of the row; {speedup}"


def require_one_stream(
    configs: Mapping[str, Mapping[str, Json]],
    fingerprints: Mapping[str, str | None],
) -> None:
    """Refuse to put runs on different data side by side.

    By their resolved configurations, and the names of their data (`summary.json`) if
    known. Raises `ConfigError`, which says which two, and which setting.
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

    By the seed of each run, and the name of its data, if known. Raises `ConfigError`.
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
    """Return what runs of one method share: all settings but seed and folder."""
    same = {k: v for k, v in config.resolved.items() if k not in ("seed", "output_dir")}
    return json.dumps(same, sort_keys=True)


def _labels(configs: list[RunConfig]) -> list[str]:
    """Name methods by strategy, else also by their folders, which name the sweep."""
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


def _catching_up(rows: Rows) -> Iterator[str]:
    """Describe where the single global model catches up with the other methods."""
    if any(len(row) > 1 for row in rows.values()):
        return
    pairs = [(name, each) for name, row in rows.items() for each in row]
    labels = {each.run.config.output_dir: name for name, each in pairs}
    lines: dict[str, list[str]] = {}
    for name, each in pairs:
        if each.single is None or each.single is each.run:
            continue
        since = caught_up(each.single.rounds, each.run.rounds)
        level = f"level with {name} from round {since} on"
        found = lines.setdefault(labels[each.single.config.output_dir], [])
        found.append(level if since else f"below {name} to the end")
    for name, levels in lines.items():
        yield f"The single global model ({name}) is " + ", ".join(sorted(levels)) + "."
