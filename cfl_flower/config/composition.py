"""From Hydra overrides to plain settings: the options of groups, and their keys.

Whether values are allowed is for `cfl_flower.config.compose`, which imports the classes
of all groups and with them torch. A misspelt key is found here, in a second less.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.types import Override
from hydra.errors import ConfigCompositionException, HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from cfl_flower.config.overrides import (
    expand,
    first_line,
    parse,
    search_path,
    split,
    with_folder,
)
from cfl_flower.errors import ConfigError
from cfl_flower.plugins import CONF, conf_folders
from cfl_flower.settings import known_names, require
from cfl_flower.types import Json

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


class Composition(NamedTuple):
    """The settings of one run as Hydra composes them, their values not yet checked."""

    settings: dict[str, Any]
    """Everything as plain data."""
    choices: dict[str, str]
    """The chosen option of each group."""
    overrides: list[str]
    """As given by the user."""


def compose_plain(overrides: Sequence[str]) -> Composition:
    """Compose one run, from overrides in Hydra's grammar: ``["strategy=fedavg"]``.

    Raises `ConfigError`, one line, for a key or option that does not exist.
    """
    parsed = parse(overrides)
    _check_options(parsed)
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            lines = [*overrides, search_path()]
            node = compose("config", lines, return_hydra_config=True)
        choices = {key: str(value) for key, value in node.hydra.runtime.choices.items()}
        _refuse_doubles(choices)
        run = OmegaConf.masked_copy(node, [str(key) for key in node if key != "hydra"])
        plain: Any = OmegaConf.to_container(run, resolve=True)
    except ConfigCompositionException as error:
        raise ConfigError(_unknown_key(parsed, error)) from error
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(first_line(error)) from error
    except YAMLError as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"a configuration file is no yaml: {reason}") from error
    return Composition(plain, choices, list(overrides))


def compose_plain_sweep(text: str) -> list[Composition]:
    """Compose every run of lines of overrides, each a sweep in Hydra's grammar.

    For example ``"strategy=fedavg,fielding seed=0,1"``: four runs, in folders below one
    `output_dir`, named by the swept values.
    """
    sweeps = (expand(with_folder(split(line))) for line in text.splitlines() or [""])
    return [compose_plain(job) for jobs in sweeps for job in jobs]


def strategy_has(name: str, path: str) -> bool:
    """Return whether a method has a setting, such as ``local.mu``.

    Of a group inside a method's settings only the group itself is looked for: which
    settings it has depends on the chosen option.
    """
    node: Any = compose_plain([f"strategy={name}"]).settings["strategy"]
    first, *rest = path.split(".")
    for part in [first] if list_options(f"strategy/{first}") else [first, *rest]:
        if not isinstance(node, Mapping) or part not in node:
            return False
        node = node[part]
    return True


def _chosen_settings(key: str, overrides: Sequence[Override]) -> Mapping[str, Json]:
    """Return the settings at a key of the chosen options; empty for a value."""
    lines = [each.input_line or "" for each in overrides]
    chosen = [line for line in lines if re.split("[=/]", line)[0] in GROUPS]
    node: Any = compose_plain(chosen).settings
    for part in filter(None, key.split(".")):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node if isinstance(node, Mapping) else {}


def _check_options(overrides: Sequence[Override]) -> None:
    """Require a known option for every override of a group."""
    for item in overrides:
        group, known = item.key_or_group, list_options(item.key_or_group)
        path = group.replace(".", "/")
        options = list_options(path) if path != group and not item.is_delete() else []
        if options and _chosen_settings(group, overrides):
            allowed = f"{path}= with one of {', '.join(options)}"
            require(False, group, item.get_value_element_as_str(), allowed)
        if not known or item.is_delete() or item.is_sweep_override():
            continue
        asked = item.get_value_element_as_str()
        if item.value() not in known:
            hint = known_names(asked, known)
            raise ConfigError(f"{group}={asked} is not allowed; {hint}")


def _refuse_doubles(choices: Mapping[str, str]) -> None:
    """Require that no file of the user's has the name of a chosen option of ours.

    Hydra would take ours and say nothing.
    """
    for group, option in choices.items():
        files = [folder / group / f"{option}.yaml" for folder in conf_folders()]
        twice = [path for path in files if path.is_file()][1:]
        if twice:
            raise ConfigError(
                f"{group}={option} is an option of cfl-flower and {twice[0]}; "
                "give your file another name"
            )


def list_options(group: str) -> list[str]:
    """Return the names of a group's options, for example of ``strategy/trigger``."""
    # Experiments are in folders by paper; folders in other groups are groups.
    pattern = "**/*.yaml" if group == "experiment" else "*.yaml"
    folders = [folder / group for folder in conf_folders()]
    return sorted(
        {
            str(path.relative_to(folder).with_suffix(""))
            for folder in folders
            for path in folder.glob(pattern)
        }
    )


def _unknown_key(overrides: Sequence[Override], error: Exception) -> str:
    match = re.search(r"Could not override '([^']+)'", str(error))
    if match is None:
        cause = error.__cause__
        return first_line(cause if isinstance(cause, Exception) else error)
    key = match.group(1)
    if "/" in key:
        group = key.partition("/")[0]
        return f"{key} has no effect with this {group}; leave it out"
    parent, _, name = key.rpartition(".")
    allowed = sorted(_chosen_settings(parent, overrides))
    return f"{key} is not a setting; {known_names(name, allowed)}"
