"""Sums of results that are made on the workers, so that the server never holds all.

A plan with a `SumSpec` says of which model each array of a reply is a new version. A
worker that hosts many virtual clients adds up all versions of a model and sends one
sum; a device sends its own result, which the server adds. The sums are exact: it makes
no difference who adds what, or into how many portions a large round is divided.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from flwr.app import RecordDict

from cfl_flower.communication.exact_sum import ExactSum, check_range
from cfl_flower.communication.outstanding import PendingMessage
from cfl_flower.communication.records import unpack_shares, unpack_sums
from cfl_flower.communication.validation import validate, validate_count
from cfl_flower.errors import InvalidResultError
from cfl_flower.types import (
    Answer,
    ClientId,
    Plan,
    Result,
    SumSpec,
    Task,
    Vector,
    Version,
    client_order,
)

PartialSums: TypeAlias = dict[Version, ExactSum]

PORTION_FLOATS = 2**27
"""Floats in the answers that the server takes in at a time, and in the models that a
message has: 512 MB."""

SHARED_FLOATS = 2**23
"""The same where server and clients are one process, whose memory has all copies of
them and which has nothing to wait for: 32 MB."""

SEALED_BYTES = 32
"""Length of a device's share of a seed, encrypted for another one: `secure.masks`."""

EMPTY: Vector = np.zeros(0, np.float32)
"""Placeholder of an array that is in a sum."""


def bases_of(plan: Plan) -> tuple[int, ...]:
    """Return of which of its task's models each array of a reply is a new version."""
    spec = plan.sum_spec
    return tuple(range(len(plan.reply))) if spec is None else spec.bases


def versions(task: Task, sum_spec: SumSpec) -> list[Version]:
    """Return what the arrays of a task's reply are versions of."""
    return [(array, task.models[base]) for array, base in enumerate(sum_spec.bases)]


def groups_of(
    tasks: Iterable[Task], sum_spec: SumSpec
) -> dict[Version, list[ClientId]]:
    """Return whose results are in the sum of each version, in the order of tasks."""
    groups: dict[Version, list[ClientId]] = defaultdict(list)
    for task in tasks:
        for version in versions(task, sum_spec):
            groups[version].append(task.client)
    return groups


def versions_of_node(
    tasks: Iterable[Task], sum_spec: SumSpec | None, simulated: bool
) -> set[Version]:
    """Return what a node adds up.

    A worker: versions that several of its tasks make, as a sum has four times the bytes
    of one alone. A device, which has one task, what it is to mask.
    """
    if sum_spec is None or not (simulated or sum_spec.masked):
        return set()
    least = 2 if simulated else 1
    groups = groups_of(tasks, sum_spec)
    return {version for version, clients in groups.items() if len(clients) >= least}


def remaining_reply(
    task: Task, plan: Plan, summed: Collection[Version]
) -> tuple[int, ...]:
    """Return the length of every array of a reply once its node has added up."""
    if plan.sum_spec is None:
        return plan.reply
    pairs = zip(versions(task, plan.sum_spec), plan.reply, strict=True)
    return tuple(0 if version in summed else length for version, length in pairs)


def open_sums(
    content: RecordDict,
    pending: PendingMessage,
    answers: Mapping[ClientId, Answer],
    simulated: bool,
) -> tuple[PartialSums, dict[int, list[bytes]]]:
    """Read what a node has added up, and by array what it encrypted for its group.

    Raises `InvalidResultError` if it cannot be read, or is not what was asked for.
    """
    plan = pending.plan
    summed = pending.summed
    if not summed:
        return {}, {}
    sums = unpack_sums(content)
    for (array, model), each in sums.items():
        if (array, model) not in summed or each.length != plan.reply[array]:
            shape = (2, each.length)
            detail = f"a sum {shape} of array {array} and model {model}"
            raise InvalidResultError("shape", detail)
    if simulated:
        return sums, {}
    answer = next(iter(answers.values()), None)
    if answer is None or answer.error:
        return {}, {}
    check_single(sums, pending, answer)
    shares = unpack_shares(content) if sums else {}
    if sums:
        check_shares(shares, sums, plan)
    return sums, shares


def check_single(sums: PartialSums, pending: PendingMessage, answer: Answer) -> None:
    """Raise `InvalidResultError` unless a device's sums are of its one result."""
    plan = pending.plan
    spec = plan.sum_spec
    assert spec is not None
    # The sums are opened before the answer is validated.
    weight = spec.weigh(validate_count(answer.num_examples, 1))
    single = all(s.terms == 1 and s.weight == weight for s in sums.values())
    expected = {version for version in pending.summed if plan.reply[version[0]]}
    if not single or set(sums) != expected:
        raise InvalidResultError("shape", "its sums are not those of its one result")


def check_shares(
    shares: Mapping[int, Sequence[bytes]], sums: PartialSums, plan: Plan
) -> None:
    """Raise `InvalidResultError` unless each masked sum has one for each other member.

    There is nothing in the place of a device's own.
    """
    spec = plan.sum_spec
    assert spec is not None
    groups = groups_of((plan.whole or plan).tasks, spec)
    expected = {
        version[0]: sorted([0, *[SEALED_BYTES] * (len(groups[version]) - 1)])
        for version in sums
    }
    found = {array: sorted(map(len, texts)) for array, texts in shares.items()}
    if found != expected:
        detail = "its shares of masks are not one for each device of its group"
        raise InvalidResultError("shape", detail)


def add_result(
    sums: PartialSums, task: Task, result: Result, sum_spec: SumSpec
) -> None:
    """Add the arrays of a valid result to their sums.

    Raises `InvalidResultError` if one does not fit; then none is added.
    """
    weight = sum_spec.weigh(result.num_examples)
    for array in result.arrays:
        check_range(array, weight)
    for version, array in zip(versions(task, sum_spec), result.arrays, strict=True):
        if not len(array):
            continue
        if version not in sums:
            sums[version] = ExactSum.empty(len(array))
        sums[version].add(array, weight)


class PartialSumBuilder:
    """Adds up the answers of one message; without a `SumSpec` they stay as they are."""

    def __init__(self, plan: Plan, phase: str, summed: Collection[Version]) -> None:
        self._plan = plan
        self._phase = phase
        self._summed = summed
        self.sums: PartialSums = {}

    def take(self, task: Task, answer: Answer | None) -> Answer | None:
        """Return what is left of an answer to be sent: an invalid one's error."""
        sum_spec = self._plan.sum_spec
        plan = self._plan
        if sum_spec is None or answer is None or answer.error is not None:
            return answer
        try:
            result = validate(answer, self._phase, plan.reply, plan.config)
            places = versions(task, sum_spec)
            pairs = list(zip(places, result.arrays, strict=True))
            mine = [a if v in self._summed else EMPTY for v, a in pairs]
            add_result(self.sums, task, replace(result, arrays=mine), sum_spec)
        except InvalidResultError as error:
            return Answer(answer.client, error=(error.reason, error.detail))
        rest = [EMPTY if v in self._summed else a for v, a in pairs]
        return replace(answer, arrays=rest)


def portions(
    plan: Plan, adders: int = 0, shared: bool = False, by_model: bool = False
) -> list[Plan]:
    """Return a plan in parts, with answers and models of at most `PORTION_FLOATS` each.

    There is at least one part, and a task in each. They are in client-id order, so that
    results are absorbed in the same order as at once; ``by_model`` in that of models,
    so that each is in one part. ``adders`` nodes add results up; with 0, every result
    comes by itself. ``shared`` is the memory of server and clients: `SHARED_FLOATS`.
    """
    most = min(PORTION_FLOATS, SHARED_FLOATS) if shared else PORTION_FLOATS
    lengths = {id(model): len(model) for model in plan.models}
    if max(sum(lengths.values()), len(plan.tasks) * _single_floats(plan)) <= most:
        return [plan]

    def order(task: Task) -> tuple[Any, ...]:
        return (task.models if by_model else ()), client_order(task.client)

    parts: list[list[Task]] = [[]]
    load = _Load(plan, adders, most)
    for task in sorted(plan.tasks, key=order):
        if parts[-1] and load.is_full(task):
            parts.append([])
            load = _Load(plan, adders, most)
        load.add(task)
        parts[-1].append(task)
    return [plan.part(tasks) for tasks in parts]


def _single_floats(plan: Plan) -> int:
    """Return the floats in a single answer; one behind masks takes the room of four."""
    masked = plan.sum_spec is not None and plan.sum_spec.masked
    return sum(plan.reply) * (4 if masked else 1)


class _Load:
    """The floats in the answers to some of a plan's tasks, and in their models."""

    def __init__(self, plan: Plan, adders: int, most: int) -> None:
        self._plan = plan
        self._most = most
        self._spec = plan.sum_spec if adders else None
        # A sum is as long as four results, at each of the nodes.
        self._enough = 4 * adders
        self._versions = Counter[Version]()
        self._sent = set[int]()
        self._answers = 0
        self._models = 0

    def _more(self, task: Task) -> tuple[int, int]:
        """Return the floats, at most, that a task adds to answers, and to models."""
        plan = self._plan
        fresh = {id(m): len(m) for m in (plan.models[index] for index in task.models)}
        models = sum(n for name, n in fresh.items() if name not in self._sent)
        if self._spec is None:
            return _single_floats(plan), models
        pairs = zip(versions(task, self._spec), plan.reply, strict=True)
        added = [n for each, n in pairs if self._versions[each] < self._enough]
        return sum(added), models

    def is_full(self, task: Task) -> bool:
        """Return whether a task that adds something does not fit."""
        answers, models = self._more(task)
        long = answers > 0 and self._answers + answers > self._most
        return long or (models > 0 and self._models + models > self._most)

    def add(self, task: Task) -> None:
        """Add a task."""
        answers, models = self._more(task)
        self._answers += answers
        self._models += models
        self._sent.update(id(self._plan.models[index]) for index in task.models)
        if self._spec is not None:
            self._versions.update(versions(task, self._spec))
