"""The ClientApp: unpacks tasks, calls a NumPyClient for each, packs the answers.

Needs neither Ray nor Hydra. A SuperNode with a ``client-id`` in its node config is that
one client; a SuperNode of a simulation hosts any virtual client.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from cfl_flower.attacks import malicious_clients
from cfl_flower.client_state import ClientState
from cfl_flower.data.stream import Stream
from cfl_flower.deadline import interruptible, time_limit
from cfl_flower.errors import TaskTimeoutError
from cfl_flower.evaluation import Evaluator
from cfl_flower.faults import draw_fault, fault_odds, strike_after, strike_before
from cfl_flower.models import FlatModel, initial_vector
from cfl_flower.records import PASSES, Answer, Batch, pack_answers, unpack_tasks
from cfl_flower.seeding import seed_torch, torch_seed
from cfl_flower.settings import build, locate
from cfl_flower.types import Task, Vector
from clients.base import ClusteredClient, Surroundings

app = ClientApp()

CLIENT_ID = "client-id"
"""Key of a device's node config that makes it one client."""


@dataclass(frozen=True)
class Workshop:
    """What all virtual clients of a worker share: data, one network, settings."""

    settings: dict[str, Any]
    odds: dict[str, float]
    stream: Stream
    model: FlatModel
    initial: Vector
    state_root: Path
    client_class: type[ClusteredClient]
    malicious: frozenset[int]

    def copy_initial(self) -> Vector:
        """Return the run's common initial model."""
        return self.initial.copy()


@lru_cache(maxsize=2)
def open_workshop(text: str) -> Workshop:
    """Build what the settings on the wire describe, once per worker and run."""
    settings = build(json.loads(text))
    # One thread: a sum in parallel would depend on the number of cores.
    torch.set_num_threads(1)
    dataset, seed = settings["dataset"], settings["seed"]
    network = settings["model"].build(dataset.shape, dataset.classes)
    use_gpu = settings["gpus_per_worker"] > 0 and torch.cuda.is_available()
    device = "cuda" if use_gpu else "cpu"
    return Workshop(
        settings,
        fault_odds(settings["faults"]),
        Stream(
            dataset,
            settings["partition"],
            settings["drift"],
            settings["clients"],
            seed,
            settings["rounds"],
            settings["data_dir"],
            device,
        ),
        FlatModel(network, device),
        initial_vector(settings["model"], dataset.shape, dataset.classes, seed),
        Path(settings["output_dir"]) / "clients",
        locate(settings["strategy"].client),
        malicious_clients(settings["faults"], settings["clients"], seed),
    )


@cache
def code_digest() -> str:
    """Name the version of this code: a hash over its modules.

    Ray workers may import another checkout's code (see `fleet.Fleet.discover`).
    """
    root = Path(__file__).parents[1]
    state = hashlib.blake2b(digest_size=8)
    for room in ("cfl_flower", "clients", "strategies"):
        for path in sorted((root / room).rglob("*.py")):
            state.update(path.relative_to(root).as_posix().encode())
            state.update(path.read_bytes())
    return state.hexdigest()


@app.query("hello")
def hello(message: Message, context: Context) -> Message:
    """Say which client this node is, or how many nodes the simulation has."""
    node = context.node_config
    reply = ConfigRecord({"code": code_digest()})
    if CLIENT_ID in node:
        reply[CLIENT_ID] = node[CLIENT_ID]
    else:
        reply["nodes"] = int(node.get("num-partitions", 1))
    return Message(RecordDict({"hello": reply}), reply_to=message)


@app.query()
@app.train()
@app.evaluate()
def work(message: Message, context: Context) -> Message:
    """Do all tasks of a message; one that fails costs nothing but its own result."""
    del context
    batch = unpack_tasks(message.content)
    workshop = open_workshop(batch.settings)
    models = zip(batch.plan.models, batch.sharers, strict=True)
    evaluator = Evaluator(workshop.model, {id(m): count for m, count in models})
    with interruptible():
        tasks = batch.plan.tasks
        answers = [do_task(workshop, batch, evaluator, task) for task in tasks]
    content = pack_answers(answer for answer in answers if answer is not None)
    return Message(content, reply_to=message)


def do_task(
    workshop: Workshop, batch: Batch, evaluator: Evaluator, task: Task
) -> Answer | None:
    """Do one client's task within its time; None is a client that sends nothing."""
    settings, client = workshop.settings, task.client
    fault = draw_fault(
        workshop.odds, settings["seed"], batch.phase, batch.round, client
    )
    try:
        with time_limit(settings["system"].task_timeout):
            strike_before(fault)
            answer = call_client(workshop, batch, evaluator, task)
    except TaskTimeoutError as error:
        return Answer(client, error=("timeout", str(error)))
    except Exception as error:  # noqa: BLE001 - whatever a client raises is its failure
        return Answer(client, error=("raised", f"{type(error).__name__}: {error}"))
    return strike_after(fault, answer)


def call_client(
    workshop: Workshop, batch: Batch, evaluator: Evaluator, task: Task
) -> Answer:
    """Call the NumPyClient method of a batch's phase."""
    settings, plan = workshop.settings, batch.plan
    seed = settings["seed"]
    config = {**plan.config, **task.config} if task.config else plan.config
    client = workshop.client_class(
        Surroundings(
            int(task.client),
            batch.round,
            seed,
            workshop.stream,
            workshop.model,
            evaluator,
            settings["strategy"],
            ClientState(
                workshop.state_root, task.client, int(config.get("keep_from", 0))
            ),
            workshop.copy_initial,
            settings["faults"].attack if task.client in workshop.malicious else "",
        )
    )
    parameters = [plan.models[index] for index in task.models]
    # For whatever draws from torch's own generator, such as dropout.
    seed_torch(torch_seed(seed, f"torch/{batch.phase}", batch.round, task.client))
    workshop.model.passes = 0
    if batch.phase in ("query", "train"):
        act = client.answer if batch.phase == "query" else client.fit
        arrays, count, metrics = act(parameters, config)
        metrics[PASSES] = workshop.model.passes
        return Answer(task.client, arrays, count, metrics=metrics)
    loss, count, metrics = client.evaluate(parameters, config)
    metrics[PASSES] = workshop.model.passes
    return Answer(task.client, (), count, loss, metrics)
