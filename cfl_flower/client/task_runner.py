"""The tasks of one message: each is a call of one client's method, within its time."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import RecordDict

from cfl_flower.client.attacks import spoil_answer
from cfl_flower.client.cohort import run_cohort
from cfl_flower.client.context import Client, ClientContext, ClientState
from cfl_flower.client.evaluation import Evaluator
from cfl_flower.client.faults import (
    draw_fault,
    inject_fault_after,
    inject_fault_before,
)
from cfl_flower.client.model_privacy import BOUNDS, bound_updates, protect_answer
from cfl_flower.client.node_config import NodeConfig
from cfl_flower.client.requests import SUMS, EvaluateRequest, LabelSumsRequest
from cfl_flower.client.resources import WorkerResources, open_resources
from cfl_flower.client.time_limit import time_limit
from cfl_flower.clustering.differences import sums_by_label, to_vector
from cfl_flower.communication.partial_sums import PartialSums
from cfl_flower.communication.records import pack_answers
from cfl_flower.communication.task_records import TaskBatch
from cfl_flower.communication.validation import asks_for_losses
from cfl_flower.errors import (
    ERROR_MARK,
    RaisedInStrictRunError,
    TaskTimeoutError,
)
from cfl_flower.learning.gradients import TRAINING_PASSES
from cfl_flower.seeding import generator, own_draws, torch_seed
from cfl_flower.types import (
    EPOCH_DIGITS,
    EPOCHS,
    PASSES,
    START_RMS,
    Answer,
    ClientId,
    Scalar,
    Task,
    Trace,
    Vector,
)

log = logging.getLogger(__name__)

KEPT = "; its text is in the device's own log"
"""Remark of a device after an exception's class, in place of its text."""


@dataclass(eq=False)
class TaskRunner:
    """Does the tasks of a message: of a simulation, or of a device (`secure.device`).

    ``node`` is the device whose message it is, and None in a simulation.
    """

    resources: WorkerResources
    batch: TaskBatch
    node: NodeConfig | None = None

    def __post_init__(self) -> None:
        self.settings = self.resources.settings
        # Folders in a message are for simulations only.
        self._state_root = self.resources.state_root
        if self.node is not None:
            self._state_root = self.node.remembered(self.settings["run"])
        batch = self.batch
        sharers = {id(batch.models[i]): n for i, n in batch.sharers.items()}
        self._evaluator = Evaluator(self.resources.model, sharers)

    def run(self) -> Iterator[tuple[Task, Answer | None]]:
        """Yield all tasks with their answers; None is a client that sends nothing.

        On a GPU cohorts of clients train at once.
        """
        tasks = self.batch.plan.tasks
        members = self.resources.members
        limit = self.settings["system"].task_timeout
        for start in range(0, len(tasks), len(members)):
            part = tasks[start : start + len(members)]
            calls = [
                partial(self.do, task, member)
                for member, task in zip(members, part, strict=False)
            ]
            alone = len(members) == 1
            answers = [calls[0]()] if alone else run_cohort(calls, limit)
            yield from zip(part, answers, strict=True)

    def do(self, task: Task, resources: WorkerResources) -> Answer | None:
        """Do one client's task within its time."""
        settings = self.settings
        phase = self.batch.phase
        client = task.client
        server_round = self.round_of(task)
        fault = draw_fault(
            resources.odds, settings["seed"], phase, server_round, client
        )
        # For whatever draws from a common generator, such as dropout from torch's.
        seed = torch_seed(settings["seed"], f"torch/{phase}", server_round, client)
        try:
            with time_limit(settings["system"].task_timeout), own_draws(seed):
                if fault:
                    inject_fault_before(fault)
                answer = self.call(task, resources)
        except TaskTimeoutError as error:
            return Answer(client, error=("timeout", str(error)))
        except (Exception, SystemExit, GeneratorExit) as error:  # noqa: BLE001
            # Whatever a client raises is its failure; Ctrl-C is not the client's.
            return self.failed(client, server_round, error)
        return inject_fault_after(fault, answer) if fault else answer

    # What a device does otherwise ----------------------------------------------------

    def pack(self, answers: list[Answer], sums: PartialSums) -> RecordDict:
        """Pack what leaves: what is left of answers beside sums, and these."""
        return pack_answers(answers, sums)

    def failed(
        self, client: ClientId, server_round: int, error: BaseException
    ) -> Answer:
        """Return the answer of a client that raised; let it end a strict run."""
        settings = self.settings
        if settings["faults"].strict and settings["engine"] == "inprocess":
            # So that debuggers stop there; elsewhere the server ends the run.
            error.add_note(
                f"{ERROR_MARK}client {client} raised this in round {server_round}, "
                f"{self.batch.phase}; faults.strict=true ends the run at the first "
                "failure"
            )
            raise RaisedInStrictRunError from error
        told = "raised", text_of(error)
        return Answer(client, error=told, trace=trace_of(error))

    # The client's call ---------------------------------------------------------------

    def round_of(self, task: Task) -> int:
        """Return a task's round: asynchronous clients have each their own."""
        return self.batch.round if task.round is None else task.round

    def call(self, task: Task, resources: WorkerResources) -> Answer:
        """Call the NumPyClient method of the message's phase."""
        batch = self.batch
        context = self.make_context(task, resources)
        config: dict[str, Any] = {**batch.plan.config, **task.config}
        if SUMS in config:
            return self.sums(context)
        if request := LabelSumsRequest.from_config(config):
            return self.sums_by_label(context, request)
        client = resources.client_class(context)
        received = [batch.models[index] for index in task.models]
        number = len(received) - EvaluateRequest.of(config).candidates
        parameters = received[:number]
        among = received[number:]
        resources.model.passes = 0
        arrays: Sequence[Vector] = ()
        loss: float | None = None
        steps = {"query": client.answer, "train": client.fit}
        step = steps.get(batch.phase, client.evaluate)
        result, count, metrics = unpack(step(parameters, config), client)
        if batch.phase == "evaluate":
            loss = plain("loss", result)
            metrics |= client.test_unlabelled(among, config) if among else {}
        else:
            arrays = unpack_vectors(result)
        training = batch.phase == "train"
        # Here, so that no method's own `fit` forgets what clients are selected by.
        if training and asks_for_losses(config) and START_RMS not in metrics:
            start = client.starting_model(parameters)
            metrics |= client.start_loss(start, config)
        privacy = self.settings["privacy"]
        if privacy.on:
            if batch.phase == "query" and arrays and not self.sends_direction(task):
                sent = "this client would send an array in a query that is no direction"
                raise ValueError(f"{sent}, which privacy={privacy.mode} does not cover")
            arrays, more = protect_answer(
                privacy, context, batch.phase, parameters, config, arrays, metrics
            )
            metrics |= more
        elif BOUNDS in config and training:
            arrays, more = bound_updates(parameters, config, arrays)
            metrics |= more
        # Clocks need the amount of computing, which can depend on a client's data
        # (flash).
        if not (privacy.on and context.folder):
            metrics |= computed(resources.model.passes, context)
        answer = Answer(task.client, arrays, count, loss, metrics)
        if context.attack:
            # After all that honest clients do, such as a clip.
            purpose = f"attack-{batch.phase}"
            rng = generator(context.seed, purpose, context.round, task.client)
            spoil_answer(context.attack, answer, batch.phase, parameters, rng)
        return answer

    def sums(self, context: ClientContext) -> Answer:
        """Return counts, sums and squares of the inputs of a client's samples.

        Not how many samples there are: that would leave beside masks.
        """
        if self.settings["privacy"].on:
            mode = self.settings["privacy"].mode
            raise ValueError(f"privacy={mode} does not cover the sums of inputs")
        if not getattr(self.settings["dataset"], "lacks_sums", False):
            raise ValueError("sums of inputs are for dataset.standardise=clients, once")
        digits = context.view(1).sums().astype(np.float32).ravel()
        return Answer(context.client, [digits], 1)

    def sums_by_label(self, context: ClientContext, asked: LabelSumsRequest) -> Answer:
        """Return the sums of a client's samples by label."""
        privacy = self.settings["privacy"]
        if privacy.on or privacy.secure_sums:
            raise ValueError("system.diagnose=true goes neither with privacy nor masks")
        # An owner may fix the setting: a server that asks without it gets nothing.
        if not self.settings["system"].diagnose:
            raise ValueError("sums by label are for system.diagnose=true alone")
        view = context.view(asked.held_in)
        x = view.train()[0].cpu().numpy()
        y = view.labels
        pool = view.train_pool
        if pool.times is not None:
            rows = asked.rows(pool.times[view.train_indices % len(pool.labels)])
            x = x[rows]
            y = y[rows]
        sums = sums_by_label(x, y, len(view.relabel))
        return Answer(context.client, [to_vector(sums)], 1)

    def sends_direction(self, task: Task) -> bool:
        """Return whether the array of an answer represents data, and is no model."""
        config = self.batch.plan.config | task.config
        asked = getattr(self.resources.client_class, "directions", ())
        return self.batch.phase == "query" and any(config.get(name) for name in asked)

    def make_context(self, task: Task, resources: WorkerResources) -> ClientContext:
        """Return what the client of a task may touch."""
        settings = self.settings
        batch = self.batch
        node = self.node
        client = task.client
        keep_from = batch.plan.keep_from
        alone = node is not None
        malicious = client in resources.malicious
        context = ClientContext(
            client=client,
            round=self.round_of(task),
            phase=batch.phase,
            seed=settings["seed"],
            stream=resources.stream,
            model=resources.model,
            evaluator=self._evaluator,
            settings=settings["strategy"],
            state=ClientState(self._state_root, client, keep_from, alone=alone),
            initial=resources.initial.copy,
            attack=settings["faults"].attack if malicious else "",
        )
        if node is not None and node.data_dir:
            context.place = 0
            context.folder = Path(node.data_dir)
            context.secret = node.noise_secret
            if node.predictions:
                context.predictions = Path(node.predictions, f"{client}.csv")
            context.look = lambda: open_resources(batch.settings, node).stream
        return context


def computed(passes: int, context: ClientContext) -> dict[str, Scalar]:
    """Return what a client computed, in passes and in epochs, as metrics."""
    samples = len(context.view(context.round).labels)
    epochs = passes / (TRAINING_PASSES * samples) if samples else 0.0
    return {PASSES: passes, EPOCHS: round(epochs, EPOCH_DIGITS)}


def unpack(returned: Any, client: Client) -> tuple[Any, Any, dict[str, Any]]:
    """Return what a NumPyClient's method returned, with numpy's numbers as Python's.

    Raises `TypeError` for anything but three things of which the last are metrics that
    can be written into a message.
    """
    parts = returned if isinstance(returned, tuple) else ()
    if len(parts) != 3 or not isinstance(parts[2], Mapping):
        raise TypeError(
            f"{type(client).__name__} returned {returned!r:.60}; fit and answer return "
            "arrays, num_examples and metrics, evaluate returns loss, num_examples and "
            "metrics"
        )
    result, count, metrics = parts
    for name in metrics:
        if not isinstance(name, str):
            raise TypeError(f"metrics[{name!r:.40}]: names of metrics are text")
    numbers = {name: plain(name, value) for name, value in metrics.items()}
    return result, plain("num_examples", count), numbers


def unpack_vectors(result: Any) -> list[Vector]:
    """Return the arrays that a client returned.

    Raises `TypeError` if they are no list of flat float32 vectors.
    """
    if not isinstance(result, list | tuple):
        raise TypeError(f"arrays={result!r:.60} are no list of arrays")
    arrays = [np.asarray(array) for array in result]
    kinds = [f"{array.dtype}{array.shape}" for array in arrays]
    if any(array.ndim != 1 or array.dtype != np.float32 for array in arrays):
        raise TypeError(f"arrays {kinds} are not flat float32 vectors")
    return arrays


def plain(name: str, value: object) -> Any:
    """Return a value as a message can hold it: a number of numpy's as Python's.

    Raises `TypeError`, with the value's name, for what no message can hold.
    """
    found = value.item() if isinstance(value, np.generic) else value
    if isinstance(found, bytes):
        return found
    try:
        json.dumps(found)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"{name}={value!r:.60} is no number and no text") from error
    return found


def text_of(error: BaseException) -> str:
    """Return the class of an exception and its text, which may itself raise."""
    kind = type(error).__name__
    try:
        return f"{kind}: {error}"
    except Exception as again:  # noqa: BLE001 - a client's own code
        return f"{kind}: its text raised {type(again).__name__}"


def trace_of(error: BaseException) -> Trace:
    """Return the traceback of an exception that was raised."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    kind = f"{type(error).__name__} at {last.filename}, line {last.lineno}"
    return Trace(kind, "".join(traceback.format_exception(error)))
