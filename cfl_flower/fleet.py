"""Which node hosts which client; the delivery of tasks and the return of results.

The only room in which Flower's node ids appear. In a simulation every node can do the
task of any virtual client, so tasks are spread evenly; a real device is one client. A
node gets one message per phase, with each distinct model once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.run import Run

from cfl_flower.client_app import CLIENT_ID, code_digest
from cfl_flower.errors import InvalidResultError, WorkerLostError
from cfl_flower.records import (
    Answer,
    encode_models,
    pack_tasks,
    payload_bytes,
    unpack_answers,
    validate,
)
from cfl_flower.types import ClientId, Failure, Plan, Result, Task, client_order

if TYPE_CHECKING:
    from cfl_flower.config import RunConfig

JOIN_TIMEOUT = 60.0
"""Seconds to wait at the start for nodes, and for as many devices as configured."""

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
    bytes_up, bytes_down : int
        Models and representations, as if every client were a device of its own.
    traffic : dict
        Bytes of each client, both ways; without the models of a test.
    """

    results: list[Result] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
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


class Fleet:
    """The clients of a run and the nodes that host them.

    Parameters
    ----------
    grid : Grid
        Flower's.
    config : RunConfig
    """

    def __init__(self, grid: Grid, config: RunConfig) -> None:
        self.grid = PatientGrid(grid)
        self.simulated = False
        self._config = config
        self._settings = json.dumps(config.resolved)
        self._hosts: dict[ClientId, int] = {}
        self._nodes: list[int] = []
        self._parcels: list[Parcel] = []
        self._plan = Plan([])

    @property
    def clients(self) -> list[ClientId]:
        """All clients that can be reached, in client-id order."""
        if self.simulated:
            return list(range(self._config.clients))
        return sorted(self._hosts, key=client_order)

    def discover(self) -> None:
        """Say hello to new nodes; at the start, wait until there are enough.

        Raises
        ------
        WorkerLostError
            If no node appears, or a worker runs other code than the server.
        """
        deadline = time.monotonic() + JOIN_TIMEOUT
        while True:
            known = set(self._nodes)
            fresh = [node for node in self.grid.get_node_ids() if node not in known]
            expected = self._greet(fresh) if fresh else 0
            if known or len(self._nodes) >= max(expected, 1):
                return
            if time.monotonic() > deadline:
                if self._nodes:
                    return
                raise WorkerLostError(
                    f"no node joined within {JOIN_TIMEOUT:g} s; start SuperNodes, or "
                    'add --federation-config "num-supernodes=2"'
                )
            time.sleep(0.05)

    def _greet(self, nodes: list[int]) -> int:
        """Ask nodes who they are; return how many nodes there should be."""
        content = RecordDict({"hello": ConfigRecord({})})
        messages = [Message(content, node, "query.hello") for node in nodes]
        expected = 0
        for reply in self.grid.send_and_receive(messages, timeout=JOIN_TIMEOUT):
            node = reply.metadata.src_node_id
            if reply.has_error():
                raise WorkerLostError(f"a node cannot run the app: {_reason(reply)}")
            hello = reply.content.config_records["hello"]
            if hello["code"] != code_digest():
                raise WorkerLostError(
                    "a worker runs other code than the server (an old local SuperLink "
                    "of another checkout?); stop the flower-superlink process"
                )
            self._nodes.append(node)
            if CLIENT_ID in hello:
                name = hello[CLIENT_ID]
                self._hosts[name if isinstance(name, int) else str(name)] = node
                expected = self._config.clients
            else:
                self.simulated = True
                expected = int(str(hello["nodes"]))
        return expected

    def messages(self, phase: str, round: int, plan: Plan) -> list[Message]:
        """Turn a plan into one message per node."""
        self._plan = plan
        self._parcels = self._spread(plan.tasks)
        encoded = encode_models(plan)
        return [
            Message(
                pack_tasks(phase, round, self._settings, plan, parcel.tasks, encoded),
                parcel.node,
                phase,
                group_id=str(round),
            )
            for parcel in self._parcels
            if parcel.node is not None
        ]

    def _spread(self, tasks: list[Task]) -> list[Parcel]:
        ordered = sorted(tasks, key=lambda task: client_order(task.client))
        if self.simulated:
            count = min(len(self._nodes), len(ordered))
            nodes = sorted(self._nodes)[:count]
            return [Parcel(node, ordered[i::count]) for i, node in enumerate(nodes)]
        return [Parcel(self._hosts.get(task.client), [task]) for task in ordered]

    def collect(self, phase: str, replies: Iterable[Message]) -> Outcome:
        """Turn replies into results and failures, trusting nothing.

        Raises
        ------
        WorkerLostError
            If a simulation worker died or did not answer.
        """
        outcome = Outcome()
        by_node: dict[int | None, Message] = {
            reply.metadata.src_node_id: reply for reply in replies
        }
        for parcel in self._parcels:
            for task in parcel.tasks:
                models = [self._plan.models[index] for index in task.models]
                down = payload_bytes(models, task.config)
                outcome.bytes_down += down
                outcome.traffic[task.client] = down if phase != "evaluate" else 0
            self._open(phase, parcel, by_node.get(parcel.node), outcome)
        outcome.results.sort(key=lambda result: client_order(result.client))
        outcome.failures.sort(key=lambda failure: client_order(failure.client))
        return outcome

    def _open(
        self, phase: str, parcel: Parcel, reply: Message | None, outcome: Outcome
    ) -> None:
        """Sort the answers of one node into results and failures."""
        try:
            answers = self._answers(reply)
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
                result = validate(answer, phase, self._plan.reply)
            except InvalidResultError as error:
                failure = Failure(task.client, phase, error.reason, error.detail)
                outcome.failures.append(failure)
            else:
                outcome.results.append(result)
                up = payload_bytes(result.arrays, result.metrics)
                outcome.bytes_up += up
                outcome.traffic[task.client] += up

    @staticmethod
    def _answers(reply: Message | None) -> dict[ClientId, Answer]:
        if reply is None:
            detail = "no answer within system.message_timeout"
            raise InvalidResultError("node", detail)
        if reply.has_error():
            raise InvalidResultError("node", _reason(reply))
        return {answer.client: answer for answer in unpack_answers(reply.content)}


def _reason(reply: Message) -> str:
    """Return the last sentence of what a node says about its error, or its start."""
    lines = [line.strip() for line in str(reply.error.reason).splitlines()]
    last = next((line for line in reversed(lines) if line), "unknown reason")
    return last.split(". ")[0][:200]


class PatientGrid(Grid):
    """Flower's grid with a short, growing wait between looks for replies.

    Flower looks every 0.1 s, which doubles a round whose phases take as long.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._pending: list[Callable[[], None]] = []

    def meanwhile(self, work: Callable[[], None]) -> None:
        """Do some work while the next messages are on their way."""
        self._pending.append(work)

    def finish(self) -> None:
        """Do now what was left for later."""
        while self._pending:
            self._pending.pop(0)()

    def set_run(self, run: Run) -> None:
        """Delegate."""
        self._grid.set_run(run)

    @property
    def run(self) -> Run:
        """Delegate."""
        return self._grid.run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Delegate."""
        return self._grid.create_message(
            content, message_type, dst_node_id, group_id, ttl
        )

    def get_node_ids(self) -> Iterable[int]:
        """Delegate."""
        return self._grid.get_node_ids()

    def get_nodes(self) -> Iterable[NodeInfo]:
        """Delegate."""
        return self._grid.get_nodes()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Delegate."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Delegate."""
        return self._grid.pull_messages(message_ids)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Push messages and wait for the replies, at most ``timeout`` seconds."""
        start = time.monotonic()
        waiting, replies = set(self.push_messages(messages)), list[Message]()
        self.finish()
        while waiting:
            found = list(self.pull_messages(waiting))
            replies.extend(found)
            waiting -= {reply.metadata.reply_to_message_id for reply in found}
            elapsed = time.monotonic() - start
            if not waiting or (timeout and elapsed > timeout):
                break
            time.sleep(min(max(0.03 * elapsed, 0.003), 0.25))
        return replies
