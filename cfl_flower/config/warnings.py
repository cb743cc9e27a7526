"""Warnings: what makes a run probably not what its user meant."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from operator import attrgetter
from typing import Any

import numpy as np

from cfl_flower.building import locate
from cfl_flower.client.attacks import malicious_clients
from cfl_flower.config.options import ROUNDS
from cfl_flower.data.reading.inferred import InferredDataset
from cfl_flower.data.worlds.drift import Schedule
from cfl_flower.data.worlds.label_skew import LabelGroups
from cfl_flower.models import model_of
from cfl_flower.models.requirements import lacks_statistics, odd_outputs
from cfl_flower.run_config import RunConfig
from cfl_flower.state import StrategySettings


def find_warnings(config: RunConfig) -> list[str]:
    """Return what makes the run probably not what was meant, a line each."""
    found = [*_of_data(config), *_unused(config), *_of_network(config)]
    if isinstance(config.dataset, InferredDataset):
        found.extend(config.dataset.notes(config.data_dir))
    return found


def _of_data(config: RunConfig) -> Iterator[str]:
    """Say what clients hold, or when it changes, that is not what was asked."""
    yield from _of_rounds(config)
    last = config.timeline.world(config.rounds)
    if last.transition is not None:
        at = f"{last.transition.share:.0%} of its width in rounds={config.rounds}"
        yield f"the change of round {last.transition.began} is at {at}"
    if "forgetting" in config.metrics and not _returns(config):
        yield f"metrics=[forgetting]: no concept returns in rounds={config.rounds}"
    arrived = float(last.until.max())
    if arrived < 1:
        yield f"only {arrived:.0%} of the samples arrive in rounds={config.rounds}"
    yield from _nobodys_labels(config)


def _of_rounds(config: RunConfig) -> Iterator[str]:
    """Say what would happen after the run, or at no time."""
    name = f"strategy={config.names['strategy']}"
    why = _why_nothing_changes(config)
    if why:
        yield f"nothing changes with drift={config.names['drift']}: {why}"
    named = {at: _rounds_of(config, at) for at in ROUNDS}
    # Those of a preset are for runs of many lengths.
    asked = [line for line in config.overrides if line.startswith("drift.")]
    listed = config.drift.rounds if isinstance(config.drift, Schedule) else []
    if not why and any(".rounds=" in line for line in asked):
        named["drift.rounds"] = listed
        for at, event in config.drift.events.items():
            named[f"{at}.rounds"] = sorted({*event.rounds} - {*listed})
    if not why and any(key in line for line in asked for key in (".first=", ".every=")):
        regular = {at: each for at, each in config.drift.events.items() if each.every}
        named |= {f"{at}.first": [event.first] for at, event in regular.items()}
    for at, rounds in named.items():
        prequential = at not in ROUNDS and config.evaluation == "prequential"
        if late := [each for each in rounds if each > config.rounds + prequential]:
            yield f"nothing happens in {at}={late}, after rounds={config.rounds}"
    used = {each for event in config.drift.events.values() for each in event.rounds}
    if idle := sorted({*listed} - used):
        yield f"nothing happens in drift.rounds={idle}, which no event refers to"
    waits = config.strategy.waits
    acts = f"strategy.{waits}" not in dict(_idle(config.strategy))
    if waits and acts and getattr(config.strategy, waits) >= config.rounds:
        begins = f"strategy.{waits}={getattr(config.strategy, waits)}"
        told = f"{begins} with rounds={config.rounds}"
        yield f"{name} is still in its first rounds when the run ends: {told}"


def _rounds_of(config: RunConfig, place: str) -> list[int]:
    group, key = place.split(".")
    found: list[int] = getattr(getattr(config, group), key, [])
    return found


def _returns(config: RunConfig) -> bool:
    """Return whether the first concept of any client leaves and returns."""
    timeline = config.timeline
    # A prequential test is on the next round's data.
    early = config.evaluation == "prequential"
    later = [at for at in timeline.shown(config.rounds + early) if at > 1 + early]
    seen = np.stack([timeline.concepts(at) for at in (1 + early, *later)])
    left = np.logical_or.accumulate(seen != seen[0])
    return bool((left & (seen == seen[0])).any())


def _of_network(config: RunConfig) -> Iterator[str]:
    """Say what a network does that makes figures mean less."""
    names = config.names
    model = model_of(config)
    if getattr(config.strategy, "needs_extractor", False) and not model.split.start:
        yield (
            f"strategy={names['strategy']} is for networks with an extractor, and that "
            f"of model={names['model']} has no weights: it does less than in its "
            "paper, and than other methods; use model=mlp or a deeper one"
        )
    if lacks_statistics(model, config.dataset.shape):
        yield (
            f"the network of model={names['model']} uses in tests what training "
            "changes beside its weights, and what is not sent: each test finds it as "
            "built; register it as a buffer of floats if it is a statistic"
        )
    mixed, squashed = odd_outputs(model, config.dataset.shape)
    if squashed:
        yield (
            f"the network of model={names['model']} gives probabilities, where losses "
            "and predictions take logits; leave out what ends it, such as a softmax"
        )
    if mixed:
        yield (
            f"the network of model={names['model']} gives a sample other outputs "
            "beside other samples, in tests too, as BatchNorm without running "
            "statistics does: accuracies depend on how many are tested at once"
        )


def _nobodys_labels(config: RunConfig) -> Iterator[str]:
    """Say which labels are of no group that clients are in, but are dealt out.

    Where clients want them a little, all of their samples are dealt out; else none is.
    """
    partition = config.partition
    if not isinstance(partition, LabelGroups) or partition.samples or partition.alpha:
        return
    layout = partition.layout(config.clients, config.dataset.classes, [], config.seed)
    own = layout.demand > (1 - partition.purity) / config.dataset.classes
    if labels := np.flatnonzero(~own.any(axis=0)).tolist():
        held = f"partition.purity={partition.purity} is not what clients hold"
        yield f"no client has the labels {labels} in its group: {held}"


def _unused(config: RunConfig) -> Iterator[str]:
    """Say which of the settings that are asked for the method does not use."""
    method = locate(config.resolved["strategy"]["_target_"])
    strategy = config.strategy
    unused = dict.fromkeys(method.supports.unused, "this strategy")
    if getattr(strategy, "clusters", None) != config.clusters:
        unused["clusters"] = "this strategy"
    unused |= dict(_idle(strategy))
    unused |= _idle_elsewhere(config, method)
    if not malicious_clients(config.faults, config.clients, config.seed):
        share = f"faults.malicious={config.faults.malicious:g}"
        unused["faults.attack"] = f"{share} and faults.attackers=[]"
        if config.faults.malicious:
            unused["faults.malicious"] = f"clients={config.clients}: it is nobody"
    name = f"strategy={config.names['strategy']}"
    for key in dict.fromkeys(line.partition("=")[0] for line in config.overrides):
        path = key.replace("/", ".")
        for idle, why in unused.items():
            if path == idle or path.startswith(f"{idle}."):
                yield f"{name}: {key} has no effect with {why}"


def _idle(strategy: StrategySettings) -> Iterator[tuple[str, str]]:
    """Yield the method's settings that another of its own makes idle, and why."""
    for idle, need in strategy.idle_unless.items():
        key, _, some = need.partition("=")
        value = attrgetter(key)(strategy)
        shown = str(value).lower()
        if not (shown in some.split("|") if some else value):
            yield f"strategy.{idle}", f"strategy.{key}={shown}"


def _idle_elsewhere(config: RunConfig, method: Any) -> dict[str, str]:
    """Return the settings that others make idle, beside the method's own, and why."""
    privacy = config.privacy
    devices = config.devices
    sent = method.discloses
    used = {
        "privacy.least_members": (privacy.secure_sums, "privacy.secure_sums=false"),
        "privacy.report_noise": (sent and sent.reports, "this strategy"),
        "devices.joining": (devices.joins, "devices.joins=[]"),
        "devices.leaving": (devices.leaves, "devices.leaves=[]"),
    }
    for at, event in config.drift.events.items():
        used[f"{at}.first"] = (event.every, f"{at}.every=null")
    for name, training in vars(config.strategy).items():
        if getattr(training, "schedule", None):
            other = replace(training, learning_rate=2 * training.learning_rate)
            ok = other.rates(config.rounds) != training.rates(config.rounds)
            at = f"strategy.{name}"
            used[f"{at}.learning_rate"] = (ok, f"{at}.schedule={training.schedule}")
    return {key: why for key, (needed, why) in used.items() if not needed}


def _why_nothing_changes(config: RunConfig) -> str:
    """Return why the data stay as they are; nothing if they change, or should not."""
    changes = config.timeline.changes
    events = config.timeline.rounds
    last = config.rounds
    if not events and config.names["drift"] != "none":
        some = "name some in drift.rounds, set drift.every and drift.first"
        return f"no event is in rounds={last}; {some}, or say drift=none"
    if events and not changes and (events[-1] > 1 or not config.timeline.acts):
        told = f"its events until round {events[-1]} leave all as it is"
        return f"{told}; see cfl-flower preview, or say drift=none"
    tested = last + 1 if config.evaluation == "prequential" else last
    if changes and changes[0] > tested:
        told = f"it starts in round {changes[0]}, after the last of rounds={last}"
        return f"{told}; name others in drift.rounds; 0.5 is the middle of the run"
    return ""
