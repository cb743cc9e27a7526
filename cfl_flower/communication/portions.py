"""A large plan in parts, whose answers and models the server's memory can hold."""

from __future__ import annotations

from collections import Counter
from typing import Any

from cfl_flower.communication.partial_sums import versions
from cfl_flower.types import Plan, Task, Version, client_order

PORTION_FLOATS = 2**27
"""Floats in the answers that the server takes in at a time, and in the models that a
message has: 512 MB."""

SHARED_FLOATS = 2**23
"""The same where server and clients are one process, whose memory has all copies of
them and which has nothing to wait for: 32 MB."""


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
