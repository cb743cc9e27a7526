"""From Hydra overrides to a typed and checked configuration.

Both entry points use it: `simulations.run` and the server app.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from cfl_flower.building import build, declared, dump, locate
from cfl_flower.config.composition import (
    Composition,
    compose_plain,
    compose_plain_sweep,
)
from cfl_flower.config.options import GROUPS, list_options
from cfl_flower.config.overrides import parse
from cfl_flower.data.reading.inferred import FOUND, InferredDataset
from cfl_flower.data.reading.pool import Dataset
from cfl_flower.data.worlds.timeline import Holdings, Timeline
from cfl_flower.data.worlds.world import World, differs
from cfl_flower.engine.checks import check_method
from cfl_flower.environment.plugins import from_outside
from cfl_flower.errors import ConfigError
from cfl_flower.learning.training import least_batch
from cfl_flower.models import FlatModel
from cfl_flower.models.requirements import (
    check_network,
    require_divided,
    require_extractor_first,
    require_plain_classifier,
)
from cfl_flower.run_config import Basics, RunConfig
from cfl_flower.runs.reading import read_settings
from cfl_flower.settings import (
    located,
    require,
    require_memory,
)
from cfl_flower.types import Json

Ask: TypeAlias = Callable[[Mapping[str, Any]], dict[str, Any]]
"""Asks the devices of a run with some settings what their data are."""

DEFAULT_DATA_DIR = Path("~/.cache/cfl-flower")


def compose_config(overrides: Sequence[str]) -> RunConfig:
    """Compose and check the configuration of one run.

    From overrides in Hydra's grammar, for example ``["strategy=fedavg", "rounds=20"]``.
    Raises `ConfigError`, one line: the key, its value, what is allowed, the remedy.
    """
    return check_settings(compose_plain(overrides))


def compose_sweep(text: str, ask: Ask | None = None) -> list[RunConfig]:
    """Compose and check every run of `compose_plain_sweep`.

    ``ask`` asks devices what data they have, for a run whose files are not here.
    """
    return [check_settings(run, ask) for run in compose_plain_sweep(text)]


def check_settings(composition: Composition, ask: Ask | None = None) -> RunConfig:
    """Build the typed settings of one run, or raise a `ConfigError`."""
    plain, basics, groups = build_settings(composition)
    names = {group: composition.choices[group] for group in GROUPS}
    paths = _paths(basics, names)
    groups["dataset"] = _known_dataset(groups["dataset"], paths, plain, ask)
    groups["logger"].check()
    timeline = _timeline(basics, groups, paths["data_dir"])
    dataset = groups["dataset"]
    model = check_network(groups["model"], dataset.shape, dataset.classes)
    strategy = groups["strategy"]
    if getattr(strategy, "needs_extractor", False):
        require_divided(model, dataset.shape)
    if getattr(strategy, "trains_classifier", False):
        require_plain_classifier(model)
    if getattr(strategy, "reads_extractor", False):
        require_extractor_first(model, dataset.shape)
    _check_batches(strategy.local.batch_size, model, dataset)
    plain |= paths
    resolved = {
        key: _with_names(key, value, composition.choices) if key in GROUPS else value
        for key, value in plain.items()
    }
    config = RunConfig(
        **{key: value for key, value in plain.items() if key not in GROUPS},
        **groups,
        timeline=timeline,
        names=names,
        resolved=resolved,
        overrides=composition.overrides,
    )
    check_method(locate(plain["strategy"]["_target_"]), config)
    return config


def build_settings(
    composition: Composition,
) -> tuple[dict[str, Any], Basics, dict[str, Any]]:
    """Build the settings of one run from nothing but what was composed.

    Returns all settings as plain data, with the values that were declared, then those
    at the top level, and those of each group. Raises `ConfigError`.
    """
    settings, choices, overrides = composition
    for group in GROUPS:
        if group not in choices:
            fault = f"~{group} is not allowed, since every run needs one"
            remedy = f"write {group}= with an option, or {group}._target_= with a class"
            raise ConfigError(f"{fault}; {remedy}")
    own = {key: value for key, value in settings.items() if key not in GROUPS}
    basics = Basics(**own)
    of_groups = {group: settings[group] for group in GROUPS}
    if choices["drift"] == "none":
        of_groups["drift"] = _nothing(of_groups["drift"], overrides)
    of_groups["drift"] = _in_rounds(of_groups["drift"], basics.rounds)
    groups = {}
    for group, node in of_groups.items():
        _require_classes(group, node)
        built = build(node, group)
        ok = hasattr(built, GROUPS[group])
        require(ok, f"{group}._target_", type(built).__name__, f"a kind of {group}")
        groups[group] = built
    groups["strategy"].check_run(basics.clients)
    plain = declared(own, basics) | declared(of_groups, groups)
    return plain, basics, groups


def _require_classes(place: str, node: Any) -> None:
    """Require that settings, and those inside of them, name their classes."""
    path = node.get("_target_") if isinstance(node, Mapping) else None
    options = list_options(place)
    known = f"one of {', '.join(options)}, " if options else ""
    allowed = f"{known}settings with a _target_"
    require(isinstance(path, str), place, node, allowed)
    for key, value in node.items():
        if isinstance(value, Mapping) and "_target_" in value:
            _require_classes(f"{place}.{key}", value)
        elif isinstance(value, Mapping) and any(
            isinstance(part, Mapping) for part in value.values()
        ):
            for name, part in value.items():
                _require_classes(f"{place}.{key}.{name}", part)


def _with_names(
    group: str, node: Mapping[str, Json], choices: Mapping[str, str]
) -> dict[str, Json]:
    """Return a group with the name of its option, and those of the groups inside it."""
    found = {"name": choices[group], **node}
    for key, value in node.items():
        if (inner := f"{group}/{key}") in choices:
            found[key] = _with_names(inner, value, choices)
    return found


def _nothing(drift: Mapping[str, Json], overrides: Sequence[str]) -> dict[str, Json]:
    """Return the settings of drift=none, without what an experiment says of its own.

    Raises `ConfigError` if the user says when something is to change.
    """
    # The last value of a key counts.
    said = {each.key_or_group: each.value() for each in parse(overrides)}
    allowed = "[] with drift=none, or another drift, such as drift=regroup"
    for key, value in said.items():
        says = key.startswith("drift.") and key != "drift._target_" and value != []
        require(not says, key, value, allowed)
    return {"_target_": drift["_target_"], "rounds": [], "fraction": 1.0}


def _in_rounds(drift: Any, total: int) -> Any:
    """Return a drift's settings with shares of the run as rounds.

    They may stand in `rounds`, and in `every` and `window`, which count rounds. Those
    in `config.yaml` stay what they are when a run is continued for longer.

    Examples
    --------
    >>> _in_rounds({"rounds": [2, 0.5], "steps": {"first": {"rounds": [0.5]}}}, 12)
    {'rounds': [2, 7], 'steps': {'first': {'rounds': [7]}}}
    >>> _in_rounds({"rounds": [0.29, 0.57], "every": 0.1, "window": 0.001}, 100)
    {'rounds': [30, 58], 'every': 10, 'window': 1}
    >>> _in_rounds({"rounds": [1, 1.0], "width": 1.0}, 12)
    {'rounds': [1, 13], 'width': 12}
    """
    if not isinstance(drift, Mapping):
        return drift
    found = {key: _in_rounds(value, total) for key, value in drift.items()}
    if isinstance(found.get("rounds"), list):
        found["rounds"] = [
            # 0.29 of 100 is 28.999…
            int(round(time * total, 9)) + 1
            if isinstance(time, float) and 0 < time <= 1
            else time
            for time in found["rounds"]
        ]
    for key in ("every", "window", "width"):
        share = found.get(key)
        if isinstance(share, float) and 0 < share <= 1:
            found[key] = max(1, round(share * total))
    return found


def _known_dataset(
    dataset: Dataset, paths: Mapping[str, str], plain: dict[str, Any], ask: Ask | None
) -> Dataset:
    """Return a dataset with what its files tell, or devices; update the plain data."""
    if not isinstance(dataset, InferredDataset):
        dataset.check(paths["data_dir"])
        return dataset
    before = _agreed_before(paths["output_dir"], plain["resume"])
    if ask and dataset.absent(paths["data_dir"]):
        agreed = before or ask(plain)
        known = replace(dataset, **agreed)
    else:
        dataset.check(paths["data_dir"])
        dataset = replace(dataset, agreed=before.get("agreed", dataset.agreed))
        known = dataset.complete(paths["data_dir"])
    told = dump(known)
    plain["dataset"] |= {key: told[key] for key in FOUND}
    return known


def _agreed_before(folder: str, resume: bool) -> dict[str, Any]:
    """Return what is known of the dataset of a run that is resumed."""
    path = Path(folder, "config.yaml")
    if not (resume and path.exists()):
        return {}
    saved = read_settings(path)["dataset"]
    return {key: saved[key] for key in FOUND if key in saved}


def _check_batches(size: int, model: FlatModel, dataset: Dataset) -> None:
    """Refuse batches of one sample where BatchNorm could be trained on none of them."""
    ok = size > 1 or least_batch(model, torch.zeros(1, *dataset.shape)) == 1
    name = type(model.module).__name__
    why = f"{name} has BatchNorm, which cannot take one sample alone"
    require(ok, "strategy.local.batch_size", size, f"at least 2: {why}")


def _timeline(basics: Basics, groups: Mapping[str, Any], data_dir: str) -> Timeline:
    """Draw every world once, so that its errors appear before any training."""
    dataset = groups["dataset"]
    partition = groups["partition"]
    # Drifts of the labels that clients hold load the samples, and no others do.
    holdings = Holdings(partition, basics.seed, partial(dataset.load, data_dir))
    events = groups["drift"].events
    require_memory("rounds", basics.rounds, 100 * basics.rounds * (1 + len(events)))
    for place, event in events.items():
        require_memory(f"{place}.width", event.width, 100 * event.width)
    timeline = Timeline(
        partition,
        events,
        basics.clients,
        dataset.classes,
        basics.seed,
        basics.rounds,
        holdings.labels,
    )
    for place, event in events.items():
        with located(place):
            event.check(dataset.shape)
    images = len(dataset.shape) == 3
    outside = ["partition"] * from_outside(partition)
    outside += ["drift"] * any(map(from_outside, events.values()))
    again = replace(timeline)
    for server_round in [1, *timeline.rounds]:
        world = timeline.world(server_round)
        if outside:
            _require_same(world, again.world(server_round), " or ".join(outside))
        turned = world.degrees.any() or any(partition.turns)
        given = f"{dataset.shape} inputs, which cannot be rotated,"
        allowed = "images, or a partition and a drift without rotations"
        require(images or not turned, "dataset", given, allowed)
    for event in events.values():
        event.rehearse(dataset.shape, dataset.classes)
    return timeline


def _require_same(world: World, again: World, parts: str) -> None:
    """Refuse parts of one's own that make another world of the same seed."""
    same = not differs(world, again) and np.array_equal(world.demand, again.demand)
    if not same:
        raise ConfigError(
            f"{parts}: the same seed gives other data each time; draw from the "
            "generator that a part gets, such as occasion.rng, or from "
            "generator(seed, purpose), and remember nothing between calls"
        )


def _paths(basics: Basics, names: Mapping[str, str]) -> dict[str, str]:
    """Return the absolute paths, with their defaults filled in."""
    now = f"{datetime.now():%Y-%m-%d/%H-%M-%S}"
    folder = f"outputs/{now}-{names['strategy']}-{names['drift']}-s{basics.seed}"
    output = Path(basics.output_dir or folder).expanduser()
    data = Path(basics.data_dir or DEFAULT_DATA_DIR).expanduser()
    ok = basics.data_dir is None or data.is_dir()
    allowed = "an existing folder in torchvision's layout, or leave it out"
    require(ok, "data_dir", basics.data_dir, allowed)
    # absolute(), not resolve(): a link in the path is the user's choice.
    return {"output_dir": str(output.absolute()), "data_dir": str(data.absolute())}
