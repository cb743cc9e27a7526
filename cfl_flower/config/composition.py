"""From Hydra overrides to plain settings: the options of groups, and their keys.

Hydra composes the chosen options; what their files do not say are the defaults of their
classes. Whether values are allowed is for `cfl_flower.config.compose`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import yaml
from hydra import compose
from hydra.core.override_parser.types import Override
from hydra.errors import ConfigCompositionException, HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import (
    ConfigTypeError,
    InterpolationKeyError,
    OmegaConfBaseException,
)

from cfl_flower.building import settings_class, with_defaults
from cfl_flower.config.options import (
    GROUPS,
    check_options,
    list_options,
    refuse_doubles,
    refuse_options,
)
from cfl_flower.config.overrides import (
    apply_override,
    expand,
    first_line,
    hydra_here,
    parse,
    search_path,
    split,
    with_folder,
)
from cfl_flower.environment.plugins import allow
from cfl_flower.errors import ConfigError
from cfl_flower.settings import known_names
from cfl_flower.types import Json

OF_CLASSES = ("local.optimizer", "local.schedule", "pretraining.optimizer")
"""Settings of strategies that name a class, whose own are below ``…_settings``."""

NAMING = {
    "ids": ("fraction", "modulo", "residues"),
    "modulo": ("fraction", "ids"),
    "residues": ("fraction", "ids"),
}
"""Settings that name the clients of a drift's event, and those that narrow each
down."""

OPTIONS = "options"
"""Key of an experiment's settings for single options of a group, such as a table's own
``options.strategy.fedprox.local.mu``: they hold where that option is chosen."""


class Composition(NamedTuple):
    """The settings of one run as Hydra composes them, their values not yet checked."""

    settings: dict[str, Any]
    """Everything as plain data."""
    choices: dict[str, str]
    """The chosen option of each group."""
    overrides: list[str]
    """The user's overrides, as given."""


def compose_plain(overrides: Sequence[str], own_parts: bool = True) -> Composition:
    """Compose one run, from overrides in Hydra's grammar: ``["strategy=fedavg"]``.

    Settings that no file names have the defaults of their classes. Those of classes
    outside of what may be imported are known only with ``own_parts``, which the user's
    own command may import. Raises `ConfigError`, one line, for a key or option that
    does not exist.
    """
    parsed = parse(overrides)
    check_options(parsed)
    lines = [each.input_line or "" for each in parsed if not _is_value(each)]
    try:
        node, choices = _choose(lines)
        refuse_doubles(choices)
        own = parse(_of_options(node, choices))
        named = {each.key_or_group for each in parsed}
        inner = [o for o in own if not (_is_value(o) or o.key_or_group in named)]
        if inner:
            check_options(inner)
            node, choices = _choose([*(o.input_line or "" for o in inner), *lines])
        kept = [str(key) for key in node if key not in ("hydra", OPTIONS)]
        run = OmegaConf.masked_copy(node, kept)
        values = list(filter(_is_value, [*own, *parsed]))
        refuse_options(values, choices)
        _set_values(run, values, choices, own_parts)
        plain: Any = OmegaConf.to_container(run, resolve=True)
    except InterpolationKeyError as error:
        raise ConfigError(_too_few(run, error)) from error
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(first_line(error)) from error
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"a configuration file is no yaml: {reason}") from error
    return Composition(plain, choices, list(overrides))


def _is_value(override: Override) -> bool:
    """Return whether an override sets a value, and chooses no option of a group."""
    key = override.key_or_group
    return "/" not in key and not list_options(key)


def _choose(lines: Sequence[str]) -> tuple[DictConfig, dict[str, str]]:
    """Let Hydra compose the chosen options; return the settings and these options."""
    try:
        with hydra_here():
            node = compose("config", [*lines, search_path()], return_hydra_config=True)
    except ConfigCompositionException as error:
        if match := re.search(r"Could not override '((\w+)/[^']+)'", str(error)):
            key, group = match.groups()
            said = f"{key} has no effect with this {group}; leave it out"
        else:
            said = first_line(error.__cause__ or error)
        raise ConfigError(said) from error
    choices = node.hydra.runtime.choices
    return node, {key: str(value) for key, value in choices.items()}


def _set_values(
    run: DictConfig,
    overrides: Sequence[Override],
    choices: Mapping[str, str],
    own_parts: bool,
) -> None:
    """Set values as Hydra does, which refuses a key that is not there yet.

    Defaults are added before where a key may be one of them, and at the end everywhere:
    their classes import torch, without which other mistakes are found.
    """
    # Overrides that name a class, or have a plus.
    named = [each for each in overrides if each.key_or_group.endswith("._target_")]
    first = [each for each in overrides if each in named or each.is_add()]
    rest = [each for each in overrides if each not in first]
    _apply(first, run, choices)
    _concern_all_named(run, overrides)
    keys = (each.key_or_group for each in overrides)
    _add_defaults(run, {key.partition(".")[0] for key in keys if "." in key}, own_parts)
    _apply(rest, run, choices)
    _add_defaults(run, GROUPS, own_parts)


def _concern_all_named(run: DictConfig, overrides: Sequence[Override]) -> None:
    """Let a drift concern all clients that the user names, not a preset's share.

    Whoever sets both means a share of these clients.
    """
    keys = {each.key_or_group for each in overrides}
    for override in overrides:
        event, _, name = override.key_or_group.rpartition(".")
        node = OmegaConf.select(run, event) if name in NAMING else None
        if not (isinstance(node, DictConfig) and event.startswith("drift")):
            continue
        preset = {each for each in NAMING[name] if f"{event}.{each}" not in keys}
        with open_dict(node):
            for each in preset if override.value() else ():
                node.pop(each, None)


def _apply(
    overrides: Sequence[Override], run: DictConfig, choices: Mapping[str, str]
) -> None:
    OmegaConf.set_struct(run, True)
    for key in OF_CLASSES:
        node = OmegaConf.select(run, f"strategy.{key}_settings")
        if node is not None:
            OmegaConf.set_struct(node, False)
    for override in overrides:
        key = override.key_or_group
        try:
            apply_override(override, run)
        except (ConfigCompositionException, ValueError) as error:
            if isinstance(error.__cause__, ConfigTypeError):
                # A list for a mapping: the setting's own check says what is allowed.
                OmegaConf.update(run, key, override.value(), merge=False)
                continue
            said = _unknown_key(key, error, run, choices)
            raise ConfigError(said) from error


def _add_defaults(run: DictConfig, groups: Iterable[str], own_parts: bool) -> None:
    """Add what the classes of groups declare and no file or override says."""
    plain: Any = OmegaConf.to_container(run)
    if own_parts:
        allow(plain)
    for group in groups:
        if isinstance(plain.get(group), Mapping):
            run[group] = with_defaults(plain[group])


def _of_options(node: DictConfig, choices: Mapping[str, str]) -> Iterator[str]:
    """Yield an experiment's settings for the chosen options, as overrides."""
    of_groups: Any = OmegaConf.to_container(node.get(OPTIONS) or OmegaConf.create())
    for group in of_groups:
        known = list_options(group)
        of_options = settings_at(group, of_groups)
        for name in of_options:
            if name not in known:
                hint = known_names(name, known)
                raise ConfigError(f"{OPTIONS}.{group}.{name} is no {group}; {hint}")
        yield from _lines(of_options.get(choices.get(group, ""), {}), group, choices)


def _lines(node: Any, place: str, choices: Mapping[str, str]) -> Iterator[str]:
    """Yield plain settings as overrides, which may come before the user's.

    A name for the settings of a group within the method's chooses its option.
    """
    if not isinstance(node, Mapping):
        group = place.replace(".", "/")
        key = group if group in choices else place
        yield f"{key}={json.dumps(node)}"
        return
    for key, value in node.items():
        yield from _lines(value, f"{place}.{key}", choices)


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
    settings = compose_plain([f"strategy={name}"]).settings
    first = path.partition(".")[0]
    key = first if list_options(f"strategy/{first}") else path
    above, _, last = f"strategy.{key}".rpartition(".")
    return last in settings_at(above, settings)


def settings_at(key: str, settings: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the settings below a key; empty for a value."""
    node: Any = settings
    for part in filter(None, key.split(".")):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node if isinstance(node, Mapping) else {}


def _unknown_key(
    key: str, error: Exception, run: DictConfig, choices: Mapping[str, str]
) -> str:
    """Say why Hydra does not set a key, or one within a mapping that is its value."""
    text = str(error)
    key = getattr(error.__cause__, "full_key", "") or key
    parent, _, name = key.rpartition(".")
    if isinstance(error, ValueError):
        return f"{key} is not a setting: {parent} is a list, which is set as a whole"
    if "An item is already at" in text:
        return f"+{key} is a setting already; write {key}= without the plus"
    if "Could not override" not in text:
        return first_line(error.__cause__ or error)
    plain: Any = OmegaConf.to_container(run)
    there = settings_at(parent, plain)
    if target := there.get("_target_"):
        # Nothing is known of a class that cannot be imported, and this says why.
        settings_class(target, parent)
    hint = known_names(name, sorted(each for each in there if each != "_target_"))
    if not parent and "did you mean" not in hint:
        # A setting of a group may be meant; its classes import torch, so look last.
        _add_defaults(run, GROUPS, own_parts=True)
        plain = OmegaConf.to_container(run)
        there = settings_at(parent, plain)
    places = (line.partition("=")[0].lstrip(".") for line in _lines(there, parent, {}))
    deeper = [place for place in places if place.endswith(f".{name}")]
    if deeper:
        return f"{key} is not a setting; did you mean {' or '.join(deeper[:3])}?"
    of = f" of {parent}={choices[parent]}" if parent in choices else ""
    return f"{key} is not a setting{of}; {hint}"


def _too_few(settings: DictConfig, error: InterpolationKeyError) -> str:
    """Say that a list is shorter than the places that others refer to."""
    match = re.search(r"key '([\w.]+)\[\d+\]' not found", str(error))
    if match is None:
        return f"{first_line(error)}; correct the ${{...}} that names it"
    text = OmegaConf.to_yaml(settings)
    # A place such as ${....rounds[1]} is relative, by as many steps as it has dots.
    found = re.findall(rf"\${{(\.*){re.escape(match[1])}\[(\d+)\]}}", text)
    parts = re.findall(r"\w+", str(error.full_key))
    steps = len(found[0][0])
    key = ".".join([*(parts[:-steps] if steps else []), match[1]])
    values = OmegaConf.select(settings, key)
    count = 1 + max(int(place) for _, place in found)
    return (
        f"{key}={values} is not allowed; use a list of {count} values, each of "
        "which another setting refers to"
    )
