"""The options of groups: files of ours in conf/, and of the user's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from hydra.core.override_parser.types import Override

from cfl_flower.environment.plugins import CONF, CONFIGURATION, conf_folders
from cfl_flower.errors import ConfigError
from cfl_flower.settings import known_names, require

GROUPS = {
    "strategy": "client",
    "dataset": "load",
    "partition": "begin",
    "drift": "events",
    "model": "build",
    "selection": "choose",
    "server_optimizer": "step",
    "devices": "draw",
    "system": "task_timeout",
    "logger": "open",
    "faults": "raises",
    "privacy": "on",
}
"""The groups of settings, each with an attribute that its settings must have."""

OF_OURS = re.compile("^(_target_|defaults):", re.MULTILINE)
"""What a file of an option of ours has."""

PRESET = "# @package _global_"
"""Start of a preset's file, by which Hydra takes its settings for those of the run."""

HEADER = re.compile(r"\s*#\s*@package\s+_global_\s*?(\n|$)")
"""The same, as Hydra reads it."""

ROUNDS = ("devices.joins", "devices.leaves", "strategy.drift_rounds")
"""Settings that are lists of rounds, but for a drift's."""


def list_options(group: str) -> list[str]:
    """Return the names of a group's options, for example of ``strategy/trigger``."""
    # Experiments are in folders by paper; folders in other groups are groups.
    name = "**/*" if group == "experiment" else "*"
    found = set()
    for conf in conf_folders():
        folder = conf / group
        for path in option_files(group, name, [conf]):
            found.add(str(path.relative_to(folder).with_suffix("")))
    return sorted(found)


def option_files(
    group: str, name: str, folders: Sequence[Path] | None = None
) -> list[Path]:
    """Return the files of options by their name, a pattern; this project's first.

    The user's folder may be that of another program with Hydra. Of its files those are
    options of ours that name a class, or build on an option.
    """
    found = []
    for conf in folders or conf_folders():
        for path in sorted((conf / group).glob(f"{name}.yaml")):
            ours = conf == CONF or group == "experiment"
            if ours or OF_OURS.search(path.read_text(encoding="utf-8")):
                found.append(path)
    return found


def check_options(overrides: Sequence[Override]) -> None:
    """Require a known option for every override of a group, and none of Hydra's own."""
    for item in overrides:
        group = item.key_or_group
        if re.match(r"hydra\b", group):
            raise ConfigError(
                f"{group} has no effect here: folders, sweeps and processes are not "
                "Hydra's; use output_dir=FOLDER, --multirun or compare --jobs"
            )
        known = list_options(group)
        if not known or item.is_delete() or item.is_sweep_override():
            continue
        asked = item.get_value_element_as_str()
        if item.value() not in known:
            hint = known_names(asked, known)
            raise ConfigError(f"{group}={asked} is not allowed; {hint}")
        for path in option_files(group, asked) if group == "experiment" else ():
            if not HEADER.match(path.read_text(encoding="utf-8")):
                said = f"the first line of {path} has to be {PRESET}"
                raise ConfigError(f"experiment={asked}: {said}")


def refuse_options(overrides: Iterable[Override], choices: Mapping[str, str]) -> None:
    """Refuse values for chosen groups, whose options are named with a slash."""
    for item in overrides:
        key = item.key_or_group
        path = key.replace(".", "/")
        allowed = f"{path}= with one of {', '.join(list_options(path))}"
        ok = path == key or path not in choices or item.is_delete()
        require(ok, key, item.get_value_element_as_str(), allowed)


def refuse_doubles(choices: Mapping[str, str]) -> None:
    """Require that no file of the user's has the name of a chosen option of ours.

    Hydra would take ours and say nothing.
    """
    for group, option in choices.items():
        twice = option_files(group, option)[1:]
        if twice:
            raise ConfigError(
                f"{group}={option} is an option of cfl-flower and {twice[0]}; give "
                f"your file another name, or set {CONFIGURATION} to another folder"
            )
