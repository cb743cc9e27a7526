"""What runs are called by their settings, and tables by the values of a swept one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest

from cfl_flower.analysis.drift_metrics import mean_of_known
from cfl_flower.analysis.leads import mean_and_deviation
from cfl_flower.analysis.method_tables import FAILED, Table, new_table
from cfl_flower.analysis.saved import SavedRun
from cfl_flower.runs.reading import MAY_DIFFER
from cfl_flower.runs.record import RunLines
from cfl_flower.settings import show_value
from cfl_flower.types import Json

MOST_KEYS = 3
"""Settings that columns can differ in: runs that differ in more are no sweep."""


def mean_accuracy(rounds: RunLines, key: str = "accuracy") -> float | None:
    """Return the mean of an accuracy over the rounds, of all clients' in its absence.

    Examples
    --------
    >>> mean_accuracy([{"accuracy": 0.5, "accuracy_honest": 0.7}], "accuracy_honest")
    0.7
    """
    return mean_of_known(row.get(key, row["accuracy"]) for row in rounds)


MEASURES: dict[str, Callable[[RunLines], float | None]] = {
    "final accuracy": lambda rounds: mean_accuracy(rounds[-1:]),
    "mean accuracy over the rounds": mean_accuracy,
}
OF_HONEST = partial(mean_accuracy, key="accuracy_honest")
ATTACKED = {"mean accuracy over the rounds of honest clients": OF_HONEST}
"""The measure that is added if a run has malicious clients."""


def sweep_tables(runs: Sequence[SavedRun]) -> list[Table]:
    """Lay out final and mean accuracy, a row per method and a column per value.

    The runs are of any methods, seeds and data: those of a column saw the same ones.
    A caption tells a method's own settings where they differ between columns alone, as
    if a preset of the data chooses them. No table if only methods, their own settings
    and seeds differ.
    """
    swept = differing([_settings(run) for run in runs])
    if not 0 < len(swept) <= MOST_KEYS:
        return []
    labels = name_settings(runs)
    names = name_methods(runs, labels)
    full = zip(labels, names, name_methods(runs), strict=True)
    notes = dict.fromkeys(f"{at}: {each}" for at, name, each in full if each != name)
    done = [run.rounds for run in runs if run.complete]
    attacked = any("accuracy_honest" in rounds[-1] for rounds in done)
    tables = []
    for title, measure in (MEASURES | (ATTACKED if attacked else {})).items():
        numbers: dict[str, dict[str, dict[int, float | None]]] = {}
        for run, name, label in zip(runs, names, labels, strict=True):
            seeds = numbers.setdefault(label, {}).setdefault(name, {})
            known = run.complete and run.rounds
            seeds[run.resolved["seed"]] = measure(run.rounds) if known else None
        rows = {
            name: [_cell(column.get(name, {})) for column in numbers.values()]
            for name in dict.fromkeys(names)
        }
        what = f"{title}, in %, by {', '.join(swept)}"
        table = new_table(what, numbers, rows, "\n".join(notes))
        tables.append(replace(table, numbers=numbers))
    return tables


def _cell(seeds: Mapping[int, float | None]) -> str:
    if not seeds:
        return "-"
    known = [value for value in seeds.values() if value is not None]
    told = f", {len(known)} of {len(seeds)} seeds" if len(known) < len(seeds) else ""
    text = mean_and_deviation(known, 100, ".1f")
    return f"{text}{told}" if text else FAILED


def name_methods(runs: Sequence[SavedRun], columns: Sequence[str] = ()) -> list[str]:
    """Name the method of each run, with its own settings where several are compared.

    With the column of each run, where several are compared in one column.
    """
    own = [dict(_flat(run.resolved["strategy"])) for run in runs]
    places = list(zip_longest([run.strategy for run in runs], columns))
    found = []
    for place, settings in zip(places, own, strict=True):
        pairs = zip(places, own, strict=True)
        same = [each for other, each in pairs if other == place]
        found.append(f"{place[0]} {_label(settings, differing(same))}".rstrip())
    return found


def name_settings(runs: Sequence[SavedRun]) -> list[str]:
    """Name each run by all other settings in which the runs differ."""
    settings = [_settings(run) for run in runs]
    keys = differing(settings)
    return [_label(each, keys) for each in settings]


def differing(settings: Sequence[Mapping[str, Json]]) -> list[str]:
    """Return the keys whose values are not the same everywhere, in their order.

    Of groups with another option, only the name of the option.

    Examples
    --------
    >>> one = {"drift": "none", "faults": "none", "faults.malicious": 0.0}
    >>> differing([one, one | {"faults.malicious": 0.5}])
    ['faults.malicious']
    >>> differing([one, {"drift": "rotate", "drift.every": 3, "faults": "none"}])
    ['drift', 'faults.malicious']
    >>> strong = {"guard": "trimmed", "guard.trim": 0.1}
    >>> differing([{"guard": "none"}, strong, {"guard": "median"}])
    ['guard']
    >>> differing([{"guard": "none"}, strong, strong | {"guard.trim": 0.2}])
    ['guard', 'guard.trim']
    """
    keys = dict.fromkeys(key for each in settings for key in each)
    found = [key for key in keys if len({_text(key, each) for each in settings}) > 1]

    def differs_within_option(key: str) -> bool:
        group = next((each for each in found if key.startswith(f"{each}.")), "")
        pairs = {(_text(group, each), _text(key, each)) for each in settings}
        return len(pairs) > len({option for option, _ in pairs})

    return list(filter(differs_within_option, found))


def _text(key: str, settings: Mapping[str, Json]) -> str:
    """Return the value of a key as text, which is empty only if there is none."""
    return repr(settings[key]) if key in settings else ""


def _settings(run: SavedRun) -> dict[str, Json]:
    """Return the settings outside of the method that count, by their paths."""
    left_out = (MAY_DIFFER - {"rounds"}) | {"seed", "strategy"}
    flat = _flat({k: v for k, v in run.resolved.items() if k not in left_out})
    return {key: value for key, value in flat if key not in left_out}


def _flat(node: Mapping[str, Json], prefix: str = "") -> Iterator[tuple[str, Json]]:
    for key, value in node.items():
        if isinstance(value, Mapping):
            if "name" in value:
                yield f"{prefix}{key}", value["name"]
            inner = {k: v for k, v in value.items() if k != "name"}
            yield from _flat(inner, f"{prefix}{key}.")
        elif key != "_target_":
            yield f"{prefix}{key}", value


def _label(settings: Mapping[str, Json], keys: Sequence[str]) -> str:
    pairs = ((key.rpartition(".")[2], settings.get(key)) for key in keys)
    return " ".join(f"{name}={show_value(value)}" for name, value in pairs)
