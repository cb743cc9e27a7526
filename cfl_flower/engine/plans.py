"""The check of what a method plans, before any stage or message has it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from cfl_flower.types import ClientId, Plan, Task


def check_plan(plan: object, step: str, known: Collection[ClientId] | None) -> Plan:
    """Return a plan with Python's numbers in the place of numpy's.

    ``step`` is the method's, for errors; ``known`` are the clients that there are, None
    if any may be asked.

    Raises
    ------
    TypeError
        If it is no plan, or a model is no float32 vector.
    ValueError
        If two tasks are one client's, or a task is of an unknown client or model.
    """
    if not isinstance(plan, Plan):
        raise TypeError(f"{step} returned {plan!r:.60}, not a Plan")
    for place, model in enumerate(plan.models):
        vector = isinstance(model, np.ndarray) and model.ndim == 1
        if not vector or model.dtype != np.float32:
            raise TypeError(
                f"{step}: model {place} is no float32 vector: {model!r:.60}"
            )
    tasks = [_with_plain_numbers(task) for task in plan.tasks]
    clients = {task.client for task in tasks}
    if len(clients) < len(tasks):
        raise ValueError(f"{step} planned several tasks of one client")
    if known is not None and not clients <= set(known):
        unknown = sorted(clients - set(known), key=str)
        raise ValueError(f"{step} planned tasks of unknown clients: {unknown!r:.60}")
    places = range(len(plan.models))
    for task in tasks:
        if not all(index in places for index in task.models):
            raise ValueError(
                f"{step} sends client {task.client} models {task.models} of "
                f"{len(plan.models)}"
            )
    return replace(plan, tasks=tasks)


def _with_plain_numbers(task: Task) -> Task:
    """Return a task that JSON can hold, whatever kind of numbers it has."""
    plain = all(type(index) is int for index in task.models)
    if plain and not isinstance(task.client, np.generic):
        return task
    client = task.client
    if isinstance(client, np.generic):
        client = client.item()
    return replace(task, client=client, models=tuple(map(int, task.models)))
