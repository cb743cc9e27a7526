"""Tasks as messages, which carry each distinct model once.

A message has a batch of tasks for one node: models, the tasks as JSON rows, and the
settings a client needs. Nothing is ever unpickled.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import TypeAlias

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from cfl_flower.communication.array_bytes import decode, encode
from cfl_flower.communication.outstanding import PendingMessage
from cfl_flower.types import (
    Plan,
    SumSpec,
    Task,
    Vector,
    Version,
)


@dataclass(frozen=True)
class TaskBatch:
    """The tasks of one message, as a client app reads them."""

    phase: str
    round: int
    settings: str
    plan: Plan
    """The tasks; the models stand apart."""
    models: dict[int, Vector]
    """The models that these tasks use, by their numbers in the server's plan."""
    sharers: dict[int, int]
    """Number of clients of the whole phase that receive each model."""
    summed: Collection[Version]
    """Versions that this node adds up."""


Encoded: TypeAlias = Mapping[int, tuple[str, Array]]
"""The models that a plan sends, by their number, with their names in a message."""


def encode_models(plan: Plan) -> Encoded:
    """Encode each model that a plan sends once, to be shared by all its messages.

    Clusters may have the same model, as all have that nobody trained yet.
    """
    distinct: dict[int, tuple[str, Array]] = {}
    used = {index for task in plan.tasks for index in task.models}
    for index in used:
        model = plan.models[index]
        if id(model) not in distinct:
            distinct[id(model)] = str(index), encode(model.shape, [model])
    return {index: distinct[id(plan.models[index])] for index in used}


def pack_tasks(pending: PendingMessage, settings: str, encoded: Encoded) -> RecordDict:
    """Pack some of a plan's tasks for one node, with the models that they use.

    Models have their number in the plan.
    """
    plan = pending.plan
    used = sorted({index for task in pending.tasks for index in task.models})
    spec = plan.sum_spec if pending.summed else None
    header = {
        "phase": pending.phase,
        "round": pending.round,
        "config": plan.config,
        "tasks": [
            [task.client, task.models, task.config, task.round]
            for task in pending.tasks
        ],
        "models": [[index, encoded[index][0], plan.sharers[index]] for index in used],
        "reply": plan.reply,
        "keep_from": plan.keep_from,
        "sum_spec": None if spec is None else asdict(spec),
        "summed": sorted(pending.summed),
    }
    arrays = ArrayRecord(dict(encoded[index] for index in used))
    batch = ConfigRecord({"header": json.dumps(header), "settings": settings})
    return RecordDict({"models": arrays, "batch": batch})


def unpack_tasks(content: RecordDict) -> TaskBatch:
    """Read what `pack_tasks` wrote."""
    batch = content.config_records["batch"]
    header = json.loads(str(batch["header"]))
    # All clients of a worker receive the same array: one that writes into it fails.
    arrays = {k: decode(array) for k, array in content.array_records["models"].items()}
    # A view for each: how many clients receive a model is known by the object.
    models = {index: arrays[name].view() for index, name, _ in header["models"]}
    sharers = {index: count for index, _, count in header["models"]}
    tasks = [
        Task(client, tuple(places), config, own)
        for client, places, config, own in header["tasks"]
    ]
    spec = header["sum_spec"]
    if spec is not None:
        spec = SumSpec(**(spec | {"bases": tuple(spec["bases"])}))
    plan = Plan(
        tasks,
        config=header["config"],
        reply=tuple(header["reply"]),
        sum_spec=spec,
        keep_from=header["keep_from"],
    )
    return TaskBatch(
        phase=header["phase"],
        round=header["round"],
        settings=str(batch["settings"]),
        plan=plan,
        models=models,
        sharers=sharers,
        summed={(array, model) for array, model in header["summed"]},
    )
