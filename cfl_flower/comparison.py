"""Saved runs side by side: one set of tables for all that saw the same data."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from rich import box
from rich.console import Console
from rich.table import Table

from cfl_flower.config import RunConfig
from cfl_flower.errors import ConfigError
from cfl_flower.results import finished, read_lines
from cfl_flower.scorecard import Mark, caught_up, make_mark, score
from cfl_flower.settings import differences
from cfl_flower.sweeps import sweep_tables
from cfl_flower.tables import CLUSTERS, COSTS, drift_table, table
from cfl_flower.types import Json

DATA = ("dataset", "partition", "drift", "clients", "rounds")
"""The settings that say, with the seed, what every client holds and when."""

MOST_DRIFTS = 6
"""Drifts that are told one by one."""

Lines = list[dict[str, Json]]
"""Of `rounds.jsonl`."""

MARK = "fedavg"
"""The single global model, which others are timed against."""


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
    require_same_data(
        {
            config.output_dir: (config.seed, (finished(config) or {}).get("data"))
            for config in configs
        }
    )
    groups: dict[str, list[RunConfig]] = {}
    for config in configs:
        groups.setdefault(_method(config), []).append(config)
    labels = _labels([group[0] for group in groups.values()])
    runs: dict[str, dict[int, Lines]] = {}
    failed: list[str] = []
    marks: dict[int, Mark | None] = {}
    for label, group in zip(labels, groups.values(), strict=True):
        done = [config for config in group if finished(config)]
        some = f" ({len(done)} of {len(group)} seeds)" if len(group) > 1 else ""
        name = label + some * (0 < len(done) < len(group))
        runs[name] = {
            c.seed: read_lines(Path(c.output_dir) / "rounds.jsonl") for c in done
        }
        if label == MARK:
            marks = {seed: make_mark(lines) for seed, lines in runs[name].items()}
        failed += [
            f"{label} seed {c.seed} failed: {reasons.get(c.output_dir, 'not run')}"
            for c in group
            if c not in done
        ]
    first = configs[0]
    caption = "\n".join([*_catching_up(runs), *failed])
    for each in make_tables(first, runs, marks, caption):
        if markdown:
            each.box = box.MARKDOWN
        console.print(each)


def make_tables(
    first: RunConfig,
    runs: Mapping[str, Mapping[int, Lines]],
    marks: Mapping[int, Mark | None],
    caption: str,
) -> list[Table]:
    """Return the tables of methods on the data that the first configuration names.

    Parameters
    ----------
    first : RunConfig
    runs : mapping of str to mappings
        By method and seed.
    marks : mapping of int to Mark
        What the single global model set, by seed.
    caption : str
    """
    drifts = [r for r in first.timeline.rounds if 1 < r <= first.rounds]
    scores = {
        label: [score(lines, drifts, marks.get(seed)) for seed, lines in seeds.items()]
        for label, seeds in runs.items()
    }
    when = f" at round{'s' * (len(drifts) > 1)} {_shortened(drifts)}" if drifts else ""
    if (rounds := first.timeline.rounds) and rounds[0] > first.rounds:
        when = f" (after the last round: it starts at {rounds[0]})"
    title = (
        f"{first.names['dataset']}, {first.clients} clients, drift "
        f"{first.names['drift']}{when}, accuracy in %"
    )
    found = [table(title, scores, caption=caption)]
    if 1 < len(drifts) <= MOST_DRIFTS:
        what = "accuracy before each drift, in its first round, and at its end, in %"
        lines = {label: list(seeds.values()) for label, seeds in runs.items()}
        found.append(drift_table(what, lines, drifts))
    what = "cost"
    if known := [mark for mark in marks.values() if mark]:
        target = 100 * fmean(mark.target for mark in known)
        unit = "rounds" if known[0].seconds is None else "device time"
        what += (
            f"; target: {target:.1f}%, the final accuracy of {MARK}; speed-up: its "
            f"{unit} to stay there over the method's"
        )
    found.append(table(what, scores, COSTS))
    what = "clusters; churn: clients that change theirs in a round, in %"
    return [*found, table(what, scores, CLUSTERS)]


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
    """Name methods by strategy, else by their folders, which say what is swept."""
    names = [config.names["strategy"] for config in configs]
    if len(set(names)) == len(names):
        return names
    folders = [Path(config.output_dir).name for config in configs]
    return [re.sub(r"(^|-)seed\d+", "", folder) or folder for folder in folders]


def _shortened(drifts: list[int], most: int = MOST_DRIFTS) -> str:
    """List a few rounds, and say how many there are if they are more."""
    some = ", ".join(map(str, drifts[:most]))
    return some if len(drifts) <= most else f"{some}, ... ({len(drifts)} in all)"


def _catching_up(runs: Mapping[str, Mapping[int, Lines]]) -> list[str]:
    """Say where the single global model catches up with the clustered ones."""
    if any(len(seeds) > 1 for seeds in runs.values()) or not runs.get(MARK):
        return []
    (single,), lines = runs[MARK].values(), []
    for name, seeds in runs.items():
        if name == MARK:
            continue
        for other in seeds.values():
            since = caught_up(single, other)
            level = f"level with {name} from round {since} on"
            lines.append(level if since else f"below {name} to the end")
    if not lines:
        return []
    return [f"The single global model ({MARK}) is " + ", ".join(sorted(lines)) + "."]
