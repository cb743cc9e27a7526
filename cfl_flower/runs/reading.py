"""Reading a run directory, and telling whether it is of another run.

Damaged files are one-line errors.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from cfl_flower.building import with_defaults
from cfl_flower.environment.files import link_out
from cfl_flower.errors import ConfigError
from cfl_flower.run_config import RunConfig
from cfl_flower.runs.lines import read_lines, unbroken
from cfl_flower.settings import require, show_value
from cfl_flower.types import Json

SHOWN = 3
"""Settings in which a run differs that an error lists."""

CHOSEN = ("strategy", "dataset", "partition", "drift", "model")
"""Groups of which every `config.yaml` names an option and its class."""

MAY_DIFFER = frozenset(
    {
        "rounds",
        "resume",
        "workers",
        "gpus_per_worker",
        "engine",
        "logger",
        "output_dir",
        "data_dir",
        "dataset.agreed",
        "system",
        "faults.strict",
    }
)
"""Groups and settings without effect on the numbers of the rounds that are done."""


OF_ALL_ROUNDS = ("system.evaluate_every", "system.checkpoint_best")
"""Settings of `system` by which rounds that are done are tested, or kept as best."""


def finished(config: RunConfig) -> dict[str, Json] | None:
    """Return the summary of a run if it is complete and has the same settings.

    Raises `ConfigError` if its files cannot be read.
    """
    folder = Path(config.output_dir)
    if not (folder / "summary.json").exists() or changed_settings(config):
        return None
    summary = read_summary(folder)
    return summary if summary["rounds"] == config.rounds else None


def differences(
    one: Any, two: Any, key: str = ""
) -> Iterator[tuple[str, object, object]]:
    """Yield where two configurations differ: the full key, and the value in each.

    What is absent is None. Options of a group with another name differ in that name,
    which says more than what follows from it.

    Examples
    --------
    >>> old = {"seed": 1, "model": {"name": "mlp", "hidden": 64}}
    >>> list(differences(old, {"seed": 1, "model": {"name": "mlp", "hidden": 32}}))
    [('model.hidden', 64, 32)]
    >>> list(differences(old, {"seed": 1, "model": {"name": "cnn", "channels": 8}}))
    [('model.name', 'mlp', 'cnn')]
    """
    if not (isinstance(one, Mapping) and isinstance(two, Mapping)):
        if one != two:
            yield key, one, two
        return
    named = one.get("name") != two.get("name")
    for inner in ["name"] if named else {**one, **two}:
        path = f"{key}.{inner}" if key else inner
        yield from differences(one.get(inner), two.get(inner), path)


def effective_differences(
    saved: Mapping[str, Json], resolved: Mapping[str, Json]
) -> Iterator[tuple[str, object, object]]:
    """Yield the `differences` that affect the numbers of finished rounds.

    Settings that were added since have defaults that change nothing.
    """
    for difference in differences(with_defaults(saved), with_defaults(resolved)):
        key = difference[0]
        free = not MAY_DIFFER.isdisjoint({key, key.partition(".")[0]})
        if not free or key in OF_ALL_ROUNDS:
            yield difference


def changed_settings(config: RunConfig) -> list[str]:
    """Return where the run in the output folder differs: setting, its value, asked."""
    path = Path(config.output_dir) / "config.yaml"
    if not path.exists():
        return []
    saved = read_settings(path)
    changed = effective_differences(saved, config.resolved)
    return sorted(
        f"{key}={show_value(old)}, not {show_value(new)}" for key, old, new in changed
    ) or _changed_rates(saved["rounds"], config)


def _changed_rates(before: int, config: RunConfig) -> list[str]:
    """Return which schedules give other rates to rounds of a run of another length."""
    both = min(before, config.rounds)
    return [
        f"rounds={before}, not {config.rounds}, over which strategy.{name}.schedule="
        f"{training.schedule} spreads its rates"
        for name, training in vars(config.strategy).items()
        if getattr(training, "schedule", None)
        if training.rates(before)[:both] != training.rates(config.rounds)[:both]
    ]


def refuse_other_settings(config: RunConfig) -> None:
    """Refuse an output folder whose run is not this one.

    Raises `ConfigError` if it has other settings and finished rounds, or is resumed; or
    if its rounds are more than ``config.rounds``.
    """
    path = Path(config.output_dir)
    changed = changed_settings(config)
    rounds = read_lines(path / "rounds.jsonl")
    least = f"at least the {len(rounds)} that output_dir={path} holds"
    allowed = f"{least}, or another output_dir"
    require(len(rounds) <= config.rounds, "rounds", config.rounds, allowed)
    # Devices may have answered before a round was finished: to who asks again in the
    # name of the same run they send the same, whatever the settings are now.
    if changed and (rounds or config.resume):
        listed = "; ".join(changed[:SHOWN])
        more = "; ..." if len(changed) > SHOWN else ""
        anew = "" if rounds else ", begin anew without resume=true"
        fault = f"output_dir={path} holds another run ({listed}{more})"
        remedy = f"use the run's own settings{anew}, or another output_dir"
        raise ConfigError(f"{fault}; {remedy}")


def refuse_links_out(folder: Path) -> None:
    """Raise a `ConfigError` if an entry of a folder, or below, is a link to outside.

    A run and what is exported of it name nothing elsewhere: one that somebody else
    packed could have files of one's own read, or overwritten by a resumed run.
    """
    if link := link_out(folder):
        fault = f"{link} is a link out of its folder"
        raise ConfigError(f"{fault}; put what it names in its place, if it is yours")


class _PlainLoader(yaml.SafeLoader):
    """Reads YAML without references: with these, ten lines can be a billion values."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("it refers to other parts of itself")
        return super().compose_node(parent, index)


def read_settings(path: Path) -> dict[str, Json]:
    """Read a `config.yaml`, or raise a `ConfigError`."""
    with unbroken(path):
        settings = yaml.load(path.read_text(encoding="utf-8"), _PlainLoader) or {}
        if not isinstance(settings, dict):
            raise ValueError("no settings")
        for group in CHOSEN:
            node = settings.get(group)
            node = node if isinstance(node, dict) else {}
            if not all(isinstance(node.get(key), str) for key in ("name", "_target_")):
                raise ValueError(f"{group} is no choice")
        for key in ("clients", "participants", "rounds", "seed"):
            if type(settings.get(key)) is not int:
                raise ValueError(f"{key} is no whole number")
        for key, kind in (("evaluation", str), ("metrics", list)):
            if not isinstance(settings.get(key), kind):
                raise ValueError(f"{key} is no {kind.__name__}")
    return settings


def read_summary(folder: Path) -> dict[str, Json]:
    """Read the `summary.json` of a run, or raise a `ConfigError`."""
    path = folder / "summary.json"
    with unbroken(path):
        summary = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(summary, dict) or not {"rounds", "seconds"} <= summary.keys():
            raise ValueError("no summary of a run")
        if not isinstance(summary.get("data"), str | None):
            raise ValueError("data is no text")
    return summary
