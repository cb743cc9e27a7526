"""What the clients of a run agree on before its first round, as the server asks for it.

Devices say in words what their data are, if the server has no file that tells. Then all
clients send sums of their inputs, behind masks where a run has these. Where a run is to
say in what they differ, they send sums of each label's samples, too.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from flwr.app import Message
from flwr.serverapp import Grid

from cfl_flower.client.requests import SUMS, LabelSumsRequest
from cfl_flower.clustering.differences import COMPARED, from_vector, shape_of
from cfl_flower.communication.fleet import Fleet
from cfl_flower.communication.identity import last_sentence, pack_words, read_words
from cfl_flower.communication.nodes import NodeRegistry, some_of
from cfl_flower.communication.results import Results
from cfl_flower.data.reading.agreement import (
    UNITS,
    are_possible,
    from_digits,
    with_sums,
)
from cfl_flower.data.reading.words import Words, agree, parse_words, strangers
from cfl_flower.errors import ConfigError, printable
from cfl_flower.run_config import RunConfig
from cfl_flower.secure.server import open_sums, with_keys
from cfl_flower.settings import require
from cfl_flower.types import ClientId, FloatArray, Plan, SumSpec, Task, Vector

log = logging.getLogger(__name__)

HALVES = ("All samples", "The first half of the times", "The second half")

NO_SUMS = (
    "dataset.standardise=clients needs sums of inputs, and behind masks those of two "
    "thirds of the devices; look at failures, and begin in another output_dir"
)


def ask_for_words(grid: Grid, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a dataset that the devices of a run agree on.

    Raises `ConfigError` if they do not agree, or nobody says what it has.
    """
    pooled = settings["dataset"].get("standardise") == "pooled"
    allowed = "clients or false on devices, which have their own samples alone"
    require(not pooled, "dataset.standardise", "pooled", allowed)
    wait = float(settings["system"]["message_timeout"])
    nodes = NodeRegistry(grid, int(settings["clients"]), wait)
    nodes.discover()
    content = pack_words(json.dumps(settings))
    asked = {nodes.host(client): client for client in nodes.clients}
    messages = [Message(content, node, "query.describe") for node in asked if node]
    found: dict[ClientId, Words] = {}
    for reply in nodes.grid.send_and_receive(messages, timeout=wait):
        # For a device that left, the SuperLink answers in its own name.
        client = asked.get(reply.metadata.src_node_id, "that left")
        try:
            if reply.has_error():
                raise ConfigError(last_sentence(reply))
            found[client] = parse_words(read_words(reply.content))
        except ConfigError as error:
            why = printable(str(error))
            log.warning("client %s does not say what its data are: %s", client, why)
    if not found:
        raise ConfigError(
            "no device says what its data are; set tell-names=true in the node configs "
            "of those whose owners let names leave, or give the server a file with the "
            "same columns, categories and classes in data_dir"
        )
    words = {client: found[client] for client in nodes.clients if client in found}
    agreed = agree(words)
    for line in strangers(words):
        log.warning("%s", printable(line))
    return agreed


def with_scale(config: RunConfig, fleet: Fleet) -> RunConfig:
    """Return a run's settings with what inputs are scaled by, from its clients' sums.

    Raises `ConfigError` if there are no sums.
    """
    dataset: Any = config.dataset
    inputs = len(dataset.unscaled(config.data_dir))
    return scaled_by(config, _total(config, fleet, inputs))


def scaled_by(config: RunConfig, sums: FloatArray) -> RunConfig:
    """Return a run's settings with what the d inputs are scaled by.

    ``sums`` are digits (units, 3, d), as `agreement.sums_of` has them.
    """
    dataset: Any = config.dataset
    fills = getattr(dataset, "missing", "") == "mean"
    agreed = with_sums(dataset.unscaled(config.data_dir), sums, fills)
    resolved = {**config.resolved["dataset"], "agreed": agreed}
    return replace(
        config,
        dataset=replace(dataset, agreed=tuple(agreed)),
        resolved={**config.resolved, "dataset": resolved},
    )


def ask_for_differences(
    config: RunConfig, fleet: Fleet
) -> dict[str, dict[str, FloatArray]]:
    """Return the sums of clients' samples by label, in the first and the last period.

    Of devices with times, in the first and the second half of these. The first clients
    alone are asked. Those whose sums no samples have are left out, and the log says so.
    """
    dataset = config.dataset
    shape = shape_of(math.prod(dataset.shape), dataset.classes)
    model = np.zeros(1, np.float32)
    tasks = [Task(client, (0,)) for client in fleet.clients[:COMPARED]]
    found: dict[str, dict[str, FloatArray]] = {}
    periods = {
        f"Round {number}": LabelSumsRequest(number)
        for number in sorted({1, *config.timeline.rounds[-1:]})
    }
    if not fleet.simulated:
        halves = (1, 2) if getattr(dataset, "time", None) else (0,)
        periods = {HALVES[half]: LabelSumsRequest(1, half) for half in halves}
    for heading, asked in periods.items():
        plan = Plan(tasks, [model], asked.to_config(), (2 * math.prod(shape),))
        own: dict[str, FloatArray] = {}
        for result in _ask(config, fleet, "train", plan):
            label = fleet.label(result.client)
            sums = from_vector(result.arrays[0], shape)
            if sums is None:
                log.warning("client %s: no samples have its sums; left out", label)
            else:
                own[label] = sums
        found[heading] = own
    return found


def _total(config: RunConfig, fleet: Fleet, inputs: int) -> FloatArray:
    """Return counts, sums and squares over all clients: digits (units, 3, inputs)."""
    masked = config.privacy.secure_sums and not fleet.simulated
    spec = SumSpec((0,), by_samples=False, masked=masked)
    tasks = [Task(client, (0,)) for client in fleet.clients]
    if masked:
        # Groups are in the order of keys.
        clients = sorted((key, client) for client, key in fleet.keys.items())
        tasks = [Task(client, (0,)) for _, client in clients]
        tasks = with_keys(tasks, spec, fleet.keys)
    model = np.zeros(3 * inputs * len(UNITS), np.float32)
    summed = spec if masked or fleet.simulated else None
    plan = Plan(tasks, [model], {SUMS: True}, (len(model),), summed)
    results = _ask(config, fleet, "train", plan)
    if masked:
        ask = partial(_ask, config, fleet, "query")
        results = open_sums(plan, results, config.privacy.least_members, ask)[0]
    total = np.zeros((len(UNITS), 3, inputs))
    wrong = []
    sent = _who_sent_what(fleet, results)
    for who, vector in sent:
        digits = vector.astype(np.float64).reshape(total.shape)
        if are_possible(from_digits(digits)):
            total += digits
        else:
            wrong.append(who)
    if wrong:
        told = "%d of %d sums are left out, as no samples have them: %s"
        log.warning(told, len(wrong), len(sent), some_of(wrong))
    if len(wrong) == len(sent):
        raise ConfigError(NO_SUMS)
    return total


def _who_sent_what(
    fleet: Fleet, results: Results
) -> list[tuple[str, FloatArray | Vector]]:
    """Return digits with who sent them; of a sum, nobody sees those of one client."""
    if results.sums:
        return [("all clients", each.total()) for each in results.sums.values()]
    return [(fleet.label(each.client), each.arrays[0]) for each in results]


def _ask(config: RunConfig, fleet: Fleet, phase: str, plan: Plan) -> Results:
    """Return what clients answer before the first round."""
    messages = fleet.messages(phase, 0, plan)
    timeout = config.system.message_timeout
    return fleet.collect(fleet.grid.send_and_receive(messages, timeout=timeout), phase)
