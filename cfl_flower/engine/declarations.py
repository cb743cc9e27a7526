"""What a method says of itself, and the check of its plans."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cfl_flower.types import (
    ClientId,
    FloatArray,
    IntArray,
    Plan,
    Task,
    Vector,
)


@dataclass(frozen=True)
class Published:
    """What the server's models are to those who export them."""

    models: str = "each cluster's model"
    """Meaning of the models for the clients."""
    incomplete: str = ""
    """Why they cannot be used alone; empty if they can."""


@dataclass(frozen=True)
class Supports:
    """Which settings of other groups a method can use."""

    server_optimizer: bool = True
    """False if it has a step of its own from results to models."""
    selection: bool = True
    """False if it selects nobody."""
    centres: bool = False
    """Whether clients have a distance to their cluster's centre."""
    one_concept: bool = True
    """False if it is another method where all clients have the same concept."""
    unused: tuple[str, ...] = ()
    """Settings of every run that change nothing in it."""


UNAVERAGED = ("strategy.weighting", "strategy.weight_cap", "strategy.sampling")
"""Settings of means of participants' models, which some methods do not take."""


@dataclass(frozen=True)
class Disclosure:
    """All that a method's clients send, beside numbers of samples and tests."""

    models: int = 1
    """Trained models in a participant's answer."""
    reports: bool = False
    """Whether clients report what represents their data: a label histogram through
    `client.drift_report`, or a direction of length 1 as the only array of an answer to
    a query."""
    singly: str = ""
    """Use that the server makes of single participants' models; empty if it only
    averages those who trained the same model."""
    uncovered: str = ""
    """Further data of clients, which `privacy=` does not cover; empty if nothing."""
    in_sums: str = ""
    """Data that they send with secure sums in place of single models, which `privacy=`
    does not cover either; empty if the method needs these all the same."""


@dataclass(frozen=True)
class Description:
    """What is known of a method's clusters, for measures and selections."""

    comparable: bool = True
    """Whether participants' first arrays are new versions of their clusters' models, so
    that the distance between the two says something."""
    heterogeneity: float | None = None
    """The mean client distance within clusters."""
    centre_distances: Callable[[], FloatArray] | None = None
    """Returns the distance of each client to its cluster's centre, shape (n,)."""
    class_clusters: tuple[Sequence[ClientId], IntArray] | None = None
    """m clients and their cluster in each class, (m, L), -1 without samples of it; of a
    method whose clusters are not of whole clients."""


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
    client = task.client.item() if isinstance(task.client, np.generic) else task.client
    if client is task.client and all(type(index) is int for index in task.models):
        # A copy of each of a thousand tasks would cost milliseconds.
        return task
    return replace(task, client=client, models=tuple(map(int, task.models)))


def with_more(plan: Plan, models: Sequence[Vector]) -> Plan:
    """Return a plan whose clients receive more models, if any, behind the others."""
    if not models:
        return plan
    more = tuple(range(len(plan.models), len(plan.models) + len(models)))
    tasks = [replace(task, models=task.models + more) for task in plan.tasks]
    return replace(plan, tasks=tasks, models=[*plan.models, *models])
