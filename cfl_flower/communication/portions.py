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

    loads = [_Load(plan, adders, most)]
    for task in sorted(plan.tasks, key=order):
        if not loads[-1].takes(task):
            loads.append(_Load(plan, adders, most))
            loads[-1].takes(task)
    return [plan.part(load.tasks) for load in loads]


def _single_floats(plan: Plan) -> int:
    """Return the floats in a single answer; one behind masks takes the room of four."""
    masked = plan.sum_spec is not None and plan.sum_spec.masked
    return sum(plan.reply) * (4 if masked else 1)


class _Load:
    """Some of a plan's tasks, with the floats in their answers and in their models."""

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
        self.tasks: list[Task] = []

    def takes(self, task: Task) -> bool:
        """Take a task, unless it adds something that does not fit beside others."""
        plan = self._plan
        fresh = {id(m): len(m) for m in (plan.models[index] for index in task.models)}
        models = sum(n for name, n in fresh.items() if name not in self._sent)
        answers = _single_floats(plan)
        made = [] if self._spec is None else versions(task, self._spec)
        if made:
            pairs = zip(made, plan.reply, strict=True)
            answers = sum(n for each, n in pairs if self._versions[each] < self._enough)
        long = answers > 0 and self._answers + answers > self._most
        large = models > 0 and self._models + models > self._most
        if self.tasks and (long or large):
            return False
        self.tasks.append(task)
        self._answers += answers
        self._models += models
        self._sent |= fresh.keys()
        self._versions.update(made)
        return True
