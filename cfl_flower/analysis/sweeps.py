"""What a setting does to every method: methods by values, from saved runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev

from rich.table import Table

from cfl_flower.analysis.tables import FAILED
from cfl_flower.config.compose import RunConfig
from cfl_flower.runs.reading import finished, read_rounds
from cfl_flower.types import Json

MOST_KEYS = 3
"""Settings that columns can differ in: runs that differ in more are no sweep."""

Lines = list[dict[str, Json]]


def sweep_tables(configs: Sequence[RunConfig]) -> list[Table]:
    """Lay out final and mean accuracy, a row per method and a column per value.

    Parameters
    ----------
    configs : sequence of RunConfig
        Of any methods, seeds, and data: runs of a column saw the same ones.

    Returns
    -------
    list of Table
        None if nothing but methods, their own settings and seeds differ.
    """
    columns = [_settings(config, own=False) for config in configs]
    swept = differing(columns)
    if not 0 < len(swept) <= MOST_KEYS:
        return []
    cells: dict[str, dict[str, list[RunConfig]]] = {}
    for config, column in zip(configs, columns, strict=True):
        place = cells.setdefault(_method(config, configs), {})
        place.setdefault(_label(column, swept), []).append(config)
    headings = list(dict.fromkeys(_label(column, swept) for column in columns))
    runs = {
        name: [_read(row.get(heading, [])) for heading in headings]
        for name, row in cells.items()
    }
    attacked = any(
        "accuracy_honest" in run[-1] for r in runs.values() for c in r for run in c
    )
    found = []
    for title, number in NUMBERS.items():
        if "honest" in title and not attacked:
            continue
        table = Table(
            title=f"{title}, in %, by {', '.join(swept)}", title_justify="left"
        )
        table.add_column("strategy", overflow="fold")
        for heading in headings:
            table.add_column(heading, justify="right")
        for name, row in runs.items():
            table.add_row(name, *(_cell([number(run) for run in c]) for c in row))
        found.append(table)
    return found


def final_accuracy(rounds: Lines) -> float | None:
    """Return the accuracy of the last round."""
    last: float | None = rounds[-1]["accuracy"]
    return last


def mean_accuracy(rounds: Lines) -> float | None:
    """Return the mean accuracy over the rounds that were tested."""
    known = [row["accuracy"] for row in rounds if row["accuracy"] is not None]
    return fmean(known) if known else None


def mean_of_honest(rounds: Lines) -> float | None:
    """Return the mean accuracy, over the rounds, of clients that do not attack.

    All are honest where no round says anything else.

    Examples
    --------
    >>> mean_of_honest([{"accuracy": 0.5, "accuracy_honest": 0.75}])
    0.75
    """
    shares = [row.get("accuracy_honest", row["accuracy"]) for row in rounds]
    known = [share for share in shares if share is not None]
    return fmean(known) if known else None


NUMBERS: dict[str, Callable[[Lines], float | None]] = {
    "final accuracy": final_accuracy,
    "mean accuracy over the rounds": mean_accuracy,
    "mean accuracy over the rounds of honest clients": mean_of_honest,
}
"""What has a table."""


def differing(settings: Sequence[Mapping[str, Json]]) -> list[str]:
    """Return the keys whose values are not the same everywhere, in their order.

    Where another option of a group is chosen, that says more than what follows.

    Examples
    --------
    >>> one = {"drift": "none", "faults": "none", "faults.malicious": 0.0}
    >>> differing([one, one | {"faults.malicious": 0.5}])
    ['faults.malicious']
    >>> differing([one, {"drift": "rotate", "drift.every": 3, "faults": "none"}])
    ['drift', 'faults.malicious']
    >>> strong = {"guard": "trimmed", "guard.trim": 0.1}
    >>> differing([{"guard": "none"}, strong])
    ['guard']
    >>> differing([{"guard": "none"}, strong, strong | {"guard.trim": 0.2}])
    ['guard', 'guard.trim']
    """
    keys = dict.fromkeys(key for each in settings for key in each)
    absent = object()
    found = []
    for key in keys:
        first = settings[0].get(key, absent)
        if any(each.get(key, absent) != first for each in settings):
            found.append(key)
    return [key for key in found if _differs_within_option(key, found, settings)]


def _differs_within_option(
    key: str, found: Sequence[str], settings: Sequence[Mapping[str, Json]]
) -> bool:
    """Return whether a setting differs between runs with one option of its group."""
    group = next((each for each in found if key.startswith(f"{each}.")), None)
    if group is None:
        return True
    values: dict[str, set[str]] = {}
    for each in settings:
        values.setdefault(str(each.get(group)), set()).add(str(each.get(key)))
    return any(len(several) > 1 for several in values.values())


def _settings(config: RunConfig, own: bool) -> dict[str, Json]:
    """Return a run's settings by their paths: the method's own ones, or all others."""
    left_out = ("seed", "output_dir", "strategy")
    nodes = {
        key: value
        for key, value in config.resolved.items()
        if (key == "strategy" if own else key not in left_out)
    }
    return dict(_flat(nodes))


def _flat(node: Mapping[str, Json], prefix: str = "") -> Iterator[tuple[str, Json]]:
    for key, value in node.items():
        if isinstance(value, Mapping):
            if "name" in value:
                yield f"{prefix}{key}", value["name"]
            inner = {k: v for k, v in value.items() if k not in ("name", "_target_")}
            yield from _flat(inner, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _method(config: RunConfig, configs: Sequence[RunConfig]) -> str:
    """Name a method, with its own settings where several are compared."""
    name = config.names["strategy"]
    same = [_settings(c, own=True) for c in configs if c.names["strategy"] == name]
    return f"{name} {_label(_settings(config, own=True), differing(same))}".rstrip()


def _label(settings: Mapping[str, Json], keys: Sequence[str]) -> str:
    words = (f"{key.rpartition('.')[2]}={_shown(settings.get(key))}" for key in keys)
    return " ".join(words)


def _shown(value: Json) -> str:
    words = {None: "null", True: "true", False: "false"}
    if value is None or isinstance(value, bool):
        return words[value]
    # As many digits as anybody types: two values with one label would be two seeds.
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _read(configs: Sequence[RunConfig]) -> list[Lines]:
    """Return the rounds of a cell's runs; none unless all are complete."""
    if not all(finished(config) for config in configs):
        return []
    return [read_rounds(Path(each.output_dir)) for each in configs]


def _cell(seeds: Sequence[float | None]) -> str:
    known = [100 * seed for seed in seeds if seed is not None]
    if not known or len(known) < len(seeds):
        return FAILED
    spread = f" ± {stdev(known):.1f}" if len(known) > 1 else ""
    return f"{fmean(known):.1f}{spread}"
