"""The delivery of tasks and the return of results.

Flower's node ids appear here, in `roster` and in `grid`, and nowhere else. Tasks of a
simulation are spread evenly over its nodes; a real device is one client. A node gets
one message per phase, with each distinct model once.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from cfl_flower.communication.nodes import NodeRegistry, last_sentence
from cfl_flower.communication.partial_sums import (
    PartialSums,
    add_result,
    merge_sums,
    read_sums,
    remaining_reply,
    shared_versions,
)
from cfl_flower.communication.records import (
    HEADER_BYTES,
    EncodedModel,
    check_reply,
    encode_models,
    pack_tasks,
    payload_bytes,
    unpack_answers,
)
from cfl_flower.communication.validation import validate
from cfl_flower.errors import InvalidResultError, WorkerLostError
from cfl_flower.models import hollow_network
from cfl_flower.types import Answer, ClientId, Failure, Plan, Result, Task, client_order

if TYPE_CHECKING:
    from cfl_flower.config.compose import RunConfig

log = logging.getLogger(__name__)

RESUME = "finished rounds are saved; go on with the same command and resume=true"


@dataclass
class Outcome:
    """What came back from one phase.

    Attributes
    ----------
    results : list of Result
        In client-id order, whatever the order of arrival.
    failures : list of Failure
        In client-id order.
    sums : PartialSums
        Where the plan folds, what the results' arrays were added up to.
    bytes_up, bytes_down : int
        Models and representations, as if every client were a device of its own.
    traffic : dict
        Bytes of each client, both ways; without the models of a test.
    """

    results: list[Result] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    sums: PartialSums = field(default_factory=dict)
    bytes_up: int = 0
    bytes_down: int = 0
    traffic: dict[ClientId, int] = field(default_factory=dict)


@dataclass
class Parcel:
    """A message on its way: the node and the tasks it carries.

    ``node`` is None for a device that is not connected.
    """

    node: int | None
    tasks: list[Task]


@dataclass(frozen=True)
class Errand:
    """A message under way, and what it asks for."""

    phase: str
    round: int
    plan: Plan
    parcel: Parcel


class Fleet(NodeRegistry):
    """The roster of a run, and what travels between server and clients.

    Parameters
    ----------
    grid : Grid
        Flower's.
    config : RunConfig
    token : str
        Names the run to devices, which keep what they remember of it apart.
    """

    def __init__(self, grid: Grid, config: RunConfig, token: str = "") -> None:
        super().__init__(grid, config.clients, config.system.message_timeout)
        self._token = token
        self._settings = json.dumps({**config.resolved, "run": token})
        self._parcels: list[Parcel] = []
        self._plan, self._round = Plan([]), 0
        dataset = config.dataset
        network = hollow_network(config.model, dataset.shape, dataset.classes)
        self._floats = sum(tensor.numel() for tensor in network.state_dict().values())

    @property
    def adders(self) -> int:
        """How many nodes add up what their virtual clients send."""
        return len(self._nodes) if self.simulated else 0

    def messages(self, phase: str, round: int, plan: Plan) -> list[Message]:
        """Turn a plan into one message per node."""
        self._plan, self._round = plan, round
        self._parcels = self._spread(plan.tasks)
        encoded = encode_models(plan)
        # A device is one client, and has nothing to add up.
        told = plan if self.simulated else replace(plan, sum_spec=None)
        return [
            self.address(phase, round, told, parcel, encoded)
            for parcel in self._parcels
            if parcel.node is not None
        ]

    def address(
        self,
        phase: str,
        round: int,
        plan: Plan,
        parcel: Parcel,
        encoded: Mapping[int, EncodedModel],
    ) -> Message:
        """Return the message that takes some of a plan's tasks to their node."""
        content = pack_tasks(phase, round, self._settings, plan, parcel.tasks, encoded)
        assert parcel.node is not None
        return Message(content, parcel.node, phase, group_id=str(round))

    def _spread(self, tasks: list[Task]) -> list[Parcel]:
        ordered = sorted(tasks, key=lambda task: client_order(task.client))
        if self.simulated:
            count = min(len(self._nodes), len(ordered))
            nodes = self.nodes[:count]
            return [Parcel(node, ordered[i::count]) for i, node in enumerate(nodes)]
        return [Parcel(self.host(task.client), [task]) for task in ordered]

    def collect(self, phase: str, replies: Iterable[Message]) -> Outcome:
        """Turn replies into results and failures, trusting nothing.

        Raises
        ------
        WorkerLostError
            If a simulation worker died or did not answer.
        """
        outcome = Outcome()
        by_node: dict[int | None, Message] = {
            self.grid.addressee(reply): reply for reply in replies
        }
        for parcel in self._parcels:
            for task in parcel.tasks:
                models = [self._plan.models[index] for index in task.models]
                down = payload_bytes(models, task.config)
                outcome.bytes_down += down
                outcome.traffic[task.client] = down if phase != "evaluate" else 0
            errand = Errand(phase, self._round, self._plan, parcel)
            self.open(errand, by_node.get(parcel.node), outcome)
        outcome.results.sort(key=lambda result: client_order(result.client))
        outcome.failures.sort(key=lambda failure: client_order(failure.client))
        return outcome

    def open(self, errand: Errand, reply: Message | None, outcome: Outcome) -> None:
        """Sort the answers of one node into results and failures.

        Raises
        ------
        WorkerLostError
            If the node is a simulation's, and did not answer.
        """
        phase, plan, parcel = errand.phase, errand.plan, errand.parcel
        shared = (
            shared_versions(parcel.tasks, plan.sum_spec) if self.simulated else set()
        )
        sums: PartialSums = {}
        try:
            answers, content = self._answers(errand, reply)
            if shared:
                sums = read_sums(content, parcel.tasks, plan)
        except InvalidResultError as error:
            if self.simulated:
                raise WorkerLostError(
                    f"a worker was lost in the {phase} phase ({error}); {RESUME}"
                ) from error
            answers = {
                task.client: Answer(task.client, error=(error.reason, error.detail))
                for task in parcel.tasks
            }
        for task in parcel.tasks:
            missing = Answer(task.client, error=("missing", "the client sent nothing"))
            answer = answers.get(task.client, missing)
            try:
                expected = remaining_reply(task, plan, shared)
                result = validate(answer, phase, expected, plan.config)
                if plan.sum_spec is not None:
                    add_result(outcome.sums, task, result, plan.sum_spec)
                    result = replace(result, arrays=[])
            except InvalidResultError as error:
                failure = Failure(task.client, phase, error.reason, error.detail)
                self.note(failure)
                outcome.failures.append(failure)
            else:
                outcome.results.append(result)
                # As a device of its own would have sent it.
                up = 4 * sum(plan.reply) + payload_bytes([], result.metrics)
                outcome.bytes_up += up
                outcome.traffic[task.client] = outcome.traffic.get(task.client, 0) + up
        merge_sums(outcome.sums, sums)

    def _answers(
        self, errand: Errand, reply: Message | None
    ) -> tuple[dict[ClientId, Answer], RecordDict]:
        parcel = errand.parcel
        if parcel.node is None:
            (client,) = (task.client for task in parcel.tasks)
            detail = self.disputes.get(client, "its device is not connected")
            raise InvalidResultError("node", detail)
        if reply is None:
            detail = "it has left, or did not answer within system.message_timeout"
            raise InvalidResultError("node", detail)
        if reply.has_error():
            raise InvalidResultError("node", last_sentence(reply))
        if not self.simulated:
            most = HEADER_BYTES + 4 * (sum(errand.plan.reply) + 2 * self._floats)
            task = self._token, errand.phase, errand.round
            check_reply(reply.content, *task, most)
        answers = unpack_answers(reply.content)
        asked = [task.client for task in parcel.tasks]
        found = [answer.client for answer in answers]
        if not set(found) <= set(asked) or len(set(found)) < len(found):
            raise InvalidResultError("foreign", f"answers of {found}, not of {asked}")
        return {answer.client: answer for answer in answers}, reply.content

    def note(self, failure: Failure) -> None:
        """Log the failure of a device, and ask one that is another client now again."""
        if self.simulated:
            return
        log.warning(
            "client %s, %s: %s: %s",
            failure.client,
            failure.phase,
            failure.reason,
            failure.detail,
        )
        if failure.reason == "identity":
            self.doubt(failure.client)
