"""The ClientApp: unpacks tasks, calls a NumPyClient for each, packs the answers.

Needs neither Ray nor Hydra. A SuperNode with a ``client-id`` in its node config is that
one client; a SuperNode of a simulation hosts any virtual client.
"""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial, wraps
from pathlib import Path
from typing import Any

import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from cfl_flower.client.attacks import malicious_clients
from cfl_flower.client.cohort import cohort_size, run_cohort
from cfl_flower.client.context import Client, ClientContext
from cfl_flower.client.evaluation import Evaluator
from cfl_flower.client.faults import (
    draw_fault,
    fault_odds,
    inject_fault_after,
    inject_fault_before,
)
from cfl_flower.client.model_privacy import protect_answer
from cfl_flower.client.node_config import CLIENT_ID, KEY, NodeConfig
from cfl_flower.client.state import ClientState
from cfl_flower.client.time_limit import interruptible, time_limit
from cfl_flower.communication.device_sums import REVEAL, DeviceSums
from cfl_flower.communication.masks import public_key
from cfl_flower.communication.partial_sums import PartialSumBuilder
from cfl_flower.communication.records import TaskBatch, mark, pack_answers, unpack_tasks
from cfl_flower.communication.validation import asks_for_losses
from cfl_flower.data.worlds.drift import Regroup
from cfl_flower.data.worlds.partition import Partition
from cfl_flower.data.worlds.stream import Stream
from cfl_flower.environment.code_version import code_digest
from cfl_flower.errors import (
    ERROR_MARK,
    DeviceFailedError,
    RaisedInStrictRunError,
    TaskTimeoutError,
)
from cfl_flower.learning.cohort_training import can_train_together
from cfl_flower.models import FlatModel, build_network
from cfl_flower.seeding import seed_torch, torch_seed
from cfl_flower.settings import build, locate, require
from cfl_flower.types import PASSES, Answer, ClientId, Task, Trace, Vector

log = logging.getLogger(__name__)

app = ClientApp()

NODES = "num-partitions"
"""What Flower tells the nodes of a simulation: how many there are."""

KEPT = "; its text is in the device's own log"
"""What a device says after the class of an exception, in the place of its text."""

Answerer = Callable[[Message, Context], Message]


@dataclass(frozen=True)
class WorkerResources:
    """What all virtual clients of a worker share: data, one network, settings."""

    settings: dict[str, Any]
    odds: dict[str, float]
    stream: Stream
    model: FlatModel
    initial: Vector
    state_root: Path
    client_class: Callable[[ClientContext], Client]
    malicious: frozenset[int]

    def copy_initial(self) -> Vector:
        """Return the run's common initial model."""
        return self.initial.copy()

    @cached_property
    def members(self) -> list[WorkerResources]:
        """The same for each client of a cohort, with a network of its own.

        This alone on a CPU, which has nothing to gain, and for a network that cannot
        be trained with others.
        """
        if self.model.vector.device.type == "cpu":
            return [self]
        return self.cohort(cohort_size(self.model))

    def cohort(self, size: int) -> list[WorkerResources]:
        """Return the resources of as many clients that train together."""
        together = can_train_together(self.model, self.settings["dataset"].shape)
        if size == 1 or not together:
            return [self]
        return [replace(self, model=self.model.twin()) for _ in range(size)]


def open_resources(text: str, node: NodeConfig | None = None) -> WorkerResources:
    """Return what the settings on the wire describe, built once per worker and run.

    ``node`` is a device with data of its own: when these change, they are read again.
    """
    version = ""
    if node is not None:
        dataset = build(json.loads(text)["dataset"])
        known = hasattr(dataset, "version")
        version = str(dataset.version(node.data_dir)) if known else ""
    return _build_resources(text, node, version)


@lru_cache(maxsize=8)
def _build_resources(
    text: str, node: NodeConfig | None, version: str
) -> WorkerResources:
    del version
    settings = build(json.loads(text))
    folder = Path(settings["output_dir"])
    # The server sends absolute paths; another would lie where this process stands.
    require(folder.is_absolute(), "output_dir", folder, "an absolute path")
    state_root = folder / "clients"
    if node is not None:
        # All that is there is this client's, as it is, and changes by itself.
        settings |= {"data_dir": node.data_dir, "clients": 1}
        settings |= {"partition": Partition(), "drift": Regroup(rounds=[])}
        if hasattr(settings["dataset"], "require_below"):
            settings["dataset"].require_below(node.data_dir)
        state_root = node.remembered(settings["run"])
    # One thread: a sum in parallel would depend on the number of cores.
    torch.set_num_threads(1)
    dataset = settings["dataset"]
    seed = settings["seed"]
    network = build_network(settings["model"], dataset.shape, dataset.classes, seed)
    use_gpu = settings["gpus_per_worker"] > 0 and torch.cuda.is_available()
    device = "cuda" if use_gpu else "cpu"
    model = FlatModel(network, device)
    return WorkerResources(
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
        model,
        model.to_vector(),
        state_root,
        locate(settings["strategy"].client),
        malicious_clients(settings["faults"], settings["clients"], seed),
    )


def keep_words(answer: Answerer) -> Answerer:
    """Let an app on a device say of what it raises no more than the class.

    The text can have cells, names and paths of its owner's: it stays in its own log. A
    node that Flower did not make for a simulation is a device.
    """

    @wraps(answer)
    def on_node(message: Message, context: Context) -> Message:
        if NODES in context.node_config and CLIENT_ID not in context.node_config:
            return answer(message, context)
        try:
            return answer(message, context)
        except Exception as error:
            log.error("a message could not be answered", exc_info=error)
            kind = type(error).__name__
        # Out here, for the other exception to be no part of it.
        raise DeviceFailedError(f"{kind}{KEPT}")

    return on_node


@app.query("identify")
@keep_words
def identify(message: Message, context: Context) -> Message:
    """Say which client this node is, or how many nodes the simulation has."""
    node = NodeConfig.of(context.node_config)
    reply = ConfigRecord({"code": code_digest()})
    if node is not None:
        reply[CLIENT_ID] = node.client
        if run := str(message.content.config_records["identity"].get(KEY, "")):
            reply[KEY] = public_key(node.secret(run))
    elif NODES in context.node_config:
        reply["nodes"] = int(context.node_config[NODES])
    return Message(RecordDict({"identity": reply}), reply_to=message)


@app.query()
@app.train()
@app.evaluate()
@keep_words
def work(message: Message, context: Context) -> Message:
    """Do all tasks of a message; one that fails costs nothing but its own result."""
    batch = unpack_tasks(message.content)
    node = NodeConfig.of(context.node_config)
    # Devices that play virtual clients share what the workers of a simulation do.
    own = node if node is not None and node.data_dir else None
    resources = open_resources(batch.settings, own)
    models = zip(batch.plan.models, batch.sharers, strict=True)
    evaluator = Evaluator(resources.model, {id(m): count for m, count in models})
    builder = PartialSumBuilder(batch.plan, batch.phase)
    device = None if node is None else DeviceSums(node, resources.settings)
    answers = []
    kinds = set[str]()
    with interruptible():
        for task, answer in do_tasks(resources, batch, evaluator, node):
            left = builder.take(task, answer)
            if left is None:
                continue
            if device is not None:
                left = device.keep_in(left, sends_direction(resources, batch, task))
            # One traceback of a kind: a bug raises in every client.
            if left.trace and left.trace.kind in kinds:
                left.trace = None
            elif left.trace:
                kinds.add(left.trace.kind)
            answers.append(left)
    sums = builder.sums
    shares: dict[str, list[bytes]] = {}
    if device is not None and sums:
        sums, shares = device.hide(sums, batch.plan.tasks[0])
    content = pack_answers(answers, sums, shares)
    mark(content, resources.settings["run"], batch.phase, batch.round)
    return Message(content, reply_to=message)


def do_tasks(
    resources: WorkerResources,
    batch: TaskBatch,
    evaluator: Evaluator,
    node: NodeConfig | None = None,
) -> Iterator[tuple[Task, Answer | None]]:
    """Yield all tasks with their answers; on a GPU cohorts of clients train at once."""
    tasks = batch.plan.tasks
    members = resources.members
    limit = resources.settings["system"].task_timeout
    for start in range(0, len(tasks), len(members)):
        part = tasks[start : start + len(members)]
        calls = [
            partial(do_task, own, batch, evaluator, task, node)
            for own, task in zip(members, part, strict=False)
        ]
        alone = len(calls) == 1
        answers = [calls[0]()] if alone else run_cohort(calls, limit)
        yield from zip(part, answers, strict=True)


def do_task(
    resources: WorkerResources,
    batch: TaskBatch,
    evaluator: Evaluator,
    task: Task,
    node: NodeConfig | None = None,
) -> Answer | None:
    """Do one client's task within its time; None is a client that sends nothing."""
    settings = resources.settings
    client = task.client
    if node is not None and client != node.client:
        # It was restarted as another client since it identified itself.
        return Answer(client, error=("identity", f"this device is {node.client}"))
    server_round = own_round(batch, task)
    fault = draw_fault(
        resources.odds, settings["seed"], batch.phase, server_round, client
    )
    try:
        with time_limit(settings["system"].task_timeout):
            inject_fault_before(fault)
            if node is not None:
                sums = DeviceSums(node, settings)
                if REVEAL in task.config:
                    return sums.reveal(batch.round, task)
                problem = sums.refuse(batch.phase, batch.round, batch.plan, task)
                if problem is not None:
                    return Answer(client, error=problem)
            answer = call_client(resources, batch, evaluator, task, node)
    except TaskTimeoutError as error:
        return Answer(client, error=("timeout", str(error)))
    except Exception as error:  # noqa: BLE001 - whatever a client raises is its failure
        if node is None and settings["faults"].strict:
            leave_strict_run(
                settings["engine"], batch.phase, server_round, client, error
            )
        return failed_answer(client, batch.phase, server_round, error, node)
    return inject_fault_after(fault, answer)


def failed_answer(
    client: ClientId,
    phase: str,
    server_round: int,
    error: Exception,
    node: NodeConfig | None,
) -> Answer:
    """Return the answer of a client that raised.

    What a device's exception says, and its traceback, stay in its own log.
    """
    kind = type(error).__name__
    if node is not None:
        words = "client %s raised in round %s, %s"
        log.error(words, client, server_round, phase, exc_info=error)
        return Answer(client, error=("raised", f"{kind}{KEPT}"))
    answer = Answer(client, error=("raised", f"{kind}: {error}"))
    answer.trace = trace_of(error)
    return answer


def trace_of(error: Exception) -> Trace:
    """Return the traceback of an exception that was raised."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    kind = f"{type(error).__name__} at {last.filename}, line {last.lineno}"
    return Trace(kind, "".join(traceback.format_exception(error)))


def leave_strict_run(
    engine: str, phase: str, server_round: int, client: ClientId, error: Exception
) -> None:
    """Let a client's exception end a strict run in process, so that debuggers stop.

    Elsewhere the server ends the run.
    """
    if engine == "inprocess":
        error.add_note(
            f"{ERROR_MARK}client {client} raised this in round {server_round}, "
            f"{phase}; faults.strict=true ends the run at the first failure"
        )
        raise RaisedInStrictRunError from error


def sends_direction(resources: WorkerResources, batch: TaskBatch, task: Task) -> bool:
    """Return whether the array of an answer represents data, and is no model."""
    config = batch.plan.config | task.config
    asked = getattr(resources.client_class, "directions", ())
    return batch.phase == "query" and any(config.get(name) for name in asked)


def own_round(batch: TaskBatch, task: Task) -> int:
    """Return a task's round: clients of asynchronous methods have each their own."""
    return int(task.config.get("round", batch.round))


def make_context(
    resources: WorkerResources,
    batch: TaskBatch,
    evaluator: Evaluator,
    task: Task,
    node: NodeConfig | None = None,
) -> ClientContext:
    """Return what the client of a task may touch."""
    settings = resources.settings
    client = task.client
    kept = task.config.get("keep_from", batch.plan.config.get("keep_from", 0))
    root = resources.state_root
    alone = node is not None
    context = ClientContext(
        client=client,
        round=own_round(batch, task),
        seed=settings["seed"],
        stream=resources.stream,
        model=resources.model,
        evaluator=evaluator,
        settings=settings["strategy"],
        state=ClientState(root, client, int(kept), alone=alone),
        initial=resources.copy_initial,
        attack=settings["faults"].attack if client in resources.malicious else "",
    )
    if node is not None and node.data_dir:
        context.place = 0
        context.folder = Path(node.data_dir)
        context.look = lambda: open_resources(batch.settings, node).stream
    return context


def unpack(returned: Any, client: Client) -> Any:
    """Return what a NumPyClient's method returned, three things.

    Raises `TypeError` if it is anything else.
    """
    if isinstance(returned, tuple) and len(returned) == 3:
        return returned
    raise TypeError(
        f"{type(client).__name__} returned {returned!r:.60}; fit and answer return "
        "arrays, num_examples and metrics, evaluate returns loss, num_examples and "
        "metrics"
    )


def call_client(
    resources: WorkerResources,
    batch: TaskBatch,
    evaluator: Evaluator,
    task: Task,
    node: NodeConfig | None = None,
) -> Answer:
    """Call the NumPyClient method of a batch's phase."""
    plan = batch.plan
    context = make_context(resources, batch, evaluator, task, node)
    config = {**plan.config, **task.config} if task.config else plan.config
    client = resources.client_class(context)
    parameters = [plan.models[index] for index in task.models]
    # For whatever draws from torch's own generator, such as dropout.
    purpose = f"torch/{batch.phase}"
    seed_torch(torch_seed(context.seed, purpose, context.round, task.client))
    resources.model.passes = 0
    arrays: Sequence[Vector] = ()
    loss: float | None = None
    if batch.phase == "query":
        arrays, count, metrics = unpack(client.answer(parameters, config), client)
    elif batch.phase == "train":
        arrays, count, metrics = unpack(client.fit(parameters, config), client)
        # Here, so that no method's own `fit` can forget what clients are selected by.
        if asks_for_losses(config) and "start_rms" not in metrics:
            metrics |= client.start_loss(client.starting_model(parameters), config)
    else:
        loss, count, metrics = unpack(client.evaluate(parameters, config), client)
    privacy = resources.settings["privacy"]
    if privacy.on:
        arrays, more = protect_answer(
            privacy, context, batch.phase, parameters, config, arrays, metrics
        )
        metrics |= more
    # How much it computes can depend on a client's data (flash), and is for the clock.
    if not (privacy.on and context.folder):
        metrics[PASSES] = resources.model.passes
    return Answer(task.client, arrays, count, loss, metrics)
