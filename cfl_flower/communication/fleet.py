"""The delivery of tasks and the return of results.

Flower's node ids appear here, in `nodes`, `outstanding` and `grid`, and nowhere else.
Tasks of a simulation are spread evenly over its nodes; a real device is one client. A
node gets one message per phase, with each distinct model once.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from cfl_flower.communication.identity import FirstKeys, last_sentence
from cfl_flower.communication.nodes import SAY_EVERY, NodeRegistry, at, some_of
from cfl_flower.communication.outstanding import PendingMessage
from cfl_flower.communication.partial_sums import (
    add_result,
    open_sums,
    remaining_reply,
    versions_of_node,
)
from cfl_flower.communication.records import HEADER_BYTES, check_reply, unpack_answers
from cfl_flower.communication.results import LIMB_BYTES, Results
from cfl_flower.communication.task_records import encode_models, pack_tasks
from cfl_flower.communication.validation import validate
from cfl_flower.errors import ClientFailedError, InvalidResultError, WorkerLostError
from cfl_flower.models import model_of
from cfl_flower.run_config import RunConfig
from cfl_flower.types import (
    Answer,
    ClientId,
    Failure,
    Plan,
    Task,
    Trace,
    client_order,
)

log = logging.getLogger(__name__)

RESUME = "finished rounds are saved; go on with the same command and resume=true"

Refused: TypeAlias = dict[ClientId, tuple[InvalidResultError, Trace | None]]
"""Why clients have no valid result, with the traceback that came with it."""


class Fleet(NodeRegistry):
    """The nodes of a run, and the tasks and results that travel to and from them.

    ``token`` names the run to devices, which keep a state for each run. ``on_trace``
    receives the traceback of a simulated client, with the client, phase and round.
    """

    remedy = "fix the clients and add resume=true"
    """Remedy if no client gives a valid result."""

    def __init__(
        self,
        grid: Grid,
        config: RunConfig,
        token: str = "",
        on_trace: Callable[[ClientId, str, int, Trace], None] | None = None,
    ) -> None:
        patience = config.system.message_timeout
        masked = config.privacy.secure_sums
        keys = FirstKeys(Path(config.output_dir), token) if masked else None
        super().__init__(grid, config.clients, patience, keys)
        self.outstanding = self.grid.outstanding
        """What has been sent and not been answered."""
        if not self.simulated:
            self.grid.on_pause = self._say_who_is_awaited
        self._on_trace = on_trace
        self._strict = config.faults.strict
        self._floats = len(model_of(config).vector)
        self._token = token
        self.send_settings(config)

    def send_settings(self, config: RunConfig) -> None:
        """Let messages have the settings of a run from now on."""
        self._settings = json.dumps({**config.resolved, "run": self._token})

    def messages(
        self, phase: str, server_round: int, plan: Plan, node: int | None = None
    ) -> list[Message]:
        """Turn a plan into one message per node, or into one to a ``node`` alone.

        Their answers are outstanding from now on. A device that is not connected gets
        no message.
        """
        ordered = sorted(plan.tasks, key=lambda task: client_order(task.client))
        parts: list[tuple[int | None, list[Task]]]
        if node is not None:
            parts = [(node, plan.tasks)]
        elif self.simulated:
            nodes = self.nodes[: len(ordered)]
            parts = [(n, ordered[i :: len(nodes)]) for i, n in enumerate(nodes)]
        else:
            parts = [(self.host(task.client), [task]) for task in ordered]
        encoded = encode_models(plan)
        found = []
        for host, tasks in parts:
            summed = versions_of_node(tasks, plan.sum_spec, self.simulated)
            pending = PendingMessage(phase, server_round, plan, tasks, host, summed)
            self.outstanding.add(pending)
            if host is None:
                continue
            content = pack_tasks(pending, self._settings, encoded)
            found.append(Message(content, host, phase, group_id=str(server_round)))
        return found

    def collect(self, replies: Iterable[Message], phase: str = "") -> Results:
        """Turn replies into results and failures, trusting nothing.

        Whatever is outstanding of a ``phase`` and has no reply is a failure. Raises
        `WorkerLostError` if a simulation worker died or did not answer.
        """
        results = Results()
        for reply in replies:
            if pending := self.outstanding.answered(reply):
                self.read_reply(pending, reply, results)
        given_up = self.outstanding.give_up(lambda pending: pending.phase == phase)
        for pending in (*self.outstanding.unsent([phase]), *given_up):
            self.read_reply(pending, None, results)
        results.sort_by_client()
        return results

    def read_reply(
        self, pending: PendingMessage, reply: Message | None, results: Results
    ) -> None:
        """Add to results what a node answered; no answer is a failure of its clients.

        Raises `WorkerLostError` if the node is a simulation's, and did not answer.
        """
        try:
            if reply is None or reply.has_error():
                raise InvalidResultError("node", self._why_no_answer(pending, reply))
            if not self.simulated:
                each = LIMB_BYTES if pending.summed else 4
                most = HEADER_BYTES + each * sum(pending.plan.reply) + 8 * self._floats
                named = self._token, pending.phase, pending.round
                check_reply(reply.content, *named, most)
            found, refused = read_answers(pending, reply.content, self.simulated)
            # All of it is read; who sent the messages holds them longer, and a record
            # of Flower's refers to itself.
            for record in reply.content.values():
                record.clear()
        except InvalidResultError as error:
            if self.simulated:
                lost = f"a worker was lost in the {pending.phase} phase ({error})"
                raise WorkerLostError(f"{lost}; {RESUME}") from error
            found = Results()
            refused = Refused.fromkeys(pending.clients, (error, None))
        for client, (reason, trace) in refused.items():
            if trace and self._on_trace:
                self._on_trace(client, pending.phase, pending.round, trace)
            found.failures.append(self.fail(client, pending.phase, reason))
        results.add(found)

    def _say_who_is_awaited(self) -> None:
        """Say once a minute which devices have not answered for that long."""
        awaited = self.outstanding.awaited(SAY_EVERY)
        now = time.monotonic()
        if not awaited or now - self._said < SAY_EVERY:
            return
        self._said = now
        first = awaited[0]
        late = [self.label(client) for each in awaited for client in each.clients]
        since = at(time.time() - now + first.sent)
        where = f"round {first.round}, {first.phase}"
        log.warning("%s: waiting for %s since %s", where, some_of(late), since)

    def _why_no_answer(self, pending: PendingMessage, reply: Message | None) -> str:
        if reply is not None:
            return last_sentence(reply)
        if pending.node is None:
            not_there = "its device is not connected"
            return self.disputes.get(pending.clients[0], not_there)
        return "it has left, or did not answer within system.message_timeout"

    def fail(self, client: ClientId, phase: str, error: InvalidResultError) -> Failure:
        """Return the failure of a client, and log it for a device.

        A device that is another client now is asked anew who it is. Raises
        `ClientFailedError` in a run with `faults.strict`.
        """
        failure = Failure(client, phase, error.reason, error.detail)
        if not self.simulated:
            why = (error.reason, error.detail)
            log.warning("client %s, %s: %s: %s", self.label(client), phase, *why)
            if error.reason == "identity":
                self.recheck_identity(client)
        if self._strict:
            raise ClientFailedError(
                f"client {client} failed in phase {phase}: {error.reason}: "
                f"{error.detail}; faults.strict=true ends the run at the first failure"
            )
        return failure


def read_answers(
    pending: PendingMessage, content: RecordDict, simulated: bool
) -> tuple[Results, Refused]:
    """Return the valid results among a node's answers, and why others are none.

    Raises `InvalidResultError` if the reply as a whole makes no sense.
    """
    plan = pending.plan
    listed = unpack_answers(content)
    answers = {answer.client: answer for answer in listed}
    if not answers.keys() <= set(pending.clients) or len(answers) < len(listed):
        found = [answer.client for answer in listed]
        detail = f"answers of {found}, not of {pending.clients}"
        raise InvalidResultError("foreign", detail)
    results = Results()
    results.sums, shares = open_sums(content, pending, answers, simulated)
    refused: Refused = {}
    for task in pending.tasks:
        client = task.client
        silent = Answer(client, error=("missing", "the client sent nothing"))
        answer = answers.get(client, silent)
        try:
            lengths = remaining_reply(task, plan, pending.summed)
            result = validate(answer, pending.phase, lengths, plan.config)
            if plan.sum_spec is not None:
                result = add_result(results.sums, task, result, plan.sum_spec)
            results.append(result)
        except InvalidResultError as error:
            # Of a device a traceback is a text like any other, and it sends none.
            refused[client] = error, answer.trace if simulated else None
    # A device's sum is of its one result: without that, its group goes on alone.
    if refused and not simulated:
        results.sums = {}
    elif plan.sum_spec is not None and plan.sum_spec.masked:
        results.shares = {each.client: shares for each in results}
    return results, refused
