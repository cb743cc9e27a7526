"""Sums of results that are made on the workers, so that the server never holds all.

A plan with a `SumSpec` says of which model each array of a reply is a new version. A
worker that hosts many virtual clients adds up all versions of a model and sends one
sum; a device sends its own result, which the server adds. The sums are exact: it makes
no difference who adds what, or into how many portions a large round is divided.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from flwr.app import RecordDict

from cfl_flower.communication.exact_sum import ExactSum, check_range
from cfl_flower.communication.outstanding import PendingMessage
from cfl_flower.communication.records import unpack_shares, unpack_sums
from cfl_flower.communication.task_records import TaskBatch
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
)

PartialSums: TypeAlias = dict[Version, ExactSum]

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
) -> Result:
    """Add the arrays of a valid result to their sums, and return it without them.

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
    return replace(result, arrays=[])


def add_answer(
    sums: PartialSums, batch: TaskBatch, task: Task, answer: Answer | None
) -> Answer | None:
    """Add an answer to the sums of its message, and return what is left to be sent.

    That is an error of an invalid one; without a `SumSpec` all of it.
    """
    plan = batch.plan
    sum_spec = plan.sum_spec
    if sum_spec is None or answer is None or answer.error is not None:
        return answer
    try:
        result = validate(answer, batch.phase, plan.reply, plan.config)
        pairs = list(zip(versions(task, sum_spec), result.arrays, strict=True))
        mine = [a if v in batch.summed else EMPTY for v, a in pairs]
        add_result(sums, task, replace(result, arrays=mine), sum_spec)
    except InvalidResultError as error:
        return Answer(answer.client, error=(error.reason, error.detail))
    rest = [EMPTY if v in batch.summed else a for v, a in pairs]
    return replace(answer, arrays=rest)
