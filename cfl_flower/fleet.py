"""Which node hosts which client; the delivery of tasks and the return of results.

The only room in which Flower's node ids appear. In a simulation every node can do the
task of any virtual client, so tasks are spread evenly; a real device is one client. A
node gets one message per phase, with each distinct model once.
"""

from __future__ import annotations

import json
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.run import Run

from cfl_flower.client_app import code_digest
from cfl_flower.errors import InvalidResultError, WorkerLostError
from cfl_flower.folding import (
    Sums,
    add_result,
    merge_sums,
    read_sums,
    remaining_reply,
    shared_versions,
)
from cfl_flower.models import hollow_network
from cfl_flower.records import (
    ROOM,
    Answer,
    EncodedModel,
    check_reply,
    encode_models,
    pack_tasks,
    payload_bytes,
    unpack_answers,
    validate,
)
from cfl_flower.site import CLIENT_ID, is_client_id
from cfl_flower.types import ClientId, Failure, Plan, Result, Task, client_order

if TYPE_CHECKING:
    from cfl_flower.config import RunConfig

log = logging.getLogger(__name__)

JOIN_TIMEOUT = 60.0
"""Seconds to wait at the start for nodes, and for as many devices as configured."""

HELLO_TIMEOUT = 120.0
"""Seconds that a node may take to say who it is: a small device imports for a while."""

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
    sums : Sums
        Where the plan folds, what the results' arrays were added up to.
    bytes_up, bytes_down : int
        Models and representations, as if every client were a device of its own.
    traffic : dict
        Bytes of each client, both ways; without the models of a test.
    """

    results: list[Result] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    sums: Sums = field(default_factory=dict)
    bytes_up: int = 0
    bytes_down: int = 0
    traffic: dict[ClientId, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Hello:
    """What a node says about itself.

    Attributes
    ----------
    client : ClientId or None
        Whose device it is; None for a node of a simulation.
    nodes : int
        How many nodes the simulation has.
    """

    client: ClientId | None
    nodes: int


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


class Fleet:
    """The clients of a run and the nodes that host them.

    Parameters
    ----------
    grid : Grid
        Flower's.
    config : RunConfig
    token : str
        Names the run to devices, which keep what they remember of it apart.
    """

    def __init__(self, grid: Grid, config: RunConfig, token: str = "") -> None:
        self.grid = PatientGrid(grid)
        self.simulated = False
        self._config = config
        self._settings = json.dumps({**config.resolved, "run": token})
        self._nodes: list[int] = []
        self._claims: dict[int, ClientId] = {}
        self._hosts: dict[ClientId, int] = {}
        self._disputes: dict[ClientId, str] = {}
        self._refused: set[int] = set()
        self._parcels: list[Parcel] = []
        self._plan, self._round = Plan([]), 0
        dataset = config.dataset
        network = hollow_network(config.model, dataset.shape, dataset.classes)
        self._floats = sum(tensor.numel() for tensor in network.state_dict().values())

    @property
    def clients(self) -> list[ClientId]:
        """All clients that can be reached, in client-id order."""
        if self.simulated:
            return list(range(self._config.clients))
        return sorted(self._hosts, key=client_order)

    @property
    def adders(self) -> int:
        """How many nodes add up what their virtual clients send."""
        return len(self._nodes) if self.simulated else 0

    def discover(self) -> None:
        """Say hello to new nodes; at the start, wait until there are enough.

        A device that left is forgotten, and asked again when it is back: it may have
        come back as another client, or moved to another node.

        Raises
        ------
        WorkerLostError
            If no node appears, or a worker of a simulation runs other code.
        """
        started, expected = bool(self._nodes), 1
        deadline = time.monotonic() + JOIN_TIMEOUT
        while True:
            online = set(self.grid.get_node_ids())
            self._forget(set(self._nodes) | self._refused if started else set(), online)
            fresh = sorted(online.difference(self._nodes, self._refused))
            if fresh:
                expected = max(expected, self._greet(fresh))
            if started or len(self._nodes) >= expected:
                return
            if time.monotonic() > deadline:
                if self._nodes:
                    return
                raise WorkerLostError(
                    f"no node joined within {JOIN_TIMEOUT:g} s; start SuperNodes, or "
                    'add --federation-config "num-supernodes=2"'
                )
            time.sleep(0.05)

    def _forget(self, known: set[int], online: set[int]) -> None:
        """Forget the devices that left."""
        gone = set() if self.simulated else known - online
        self._refused -= gone
        self._nodes = [node for node in self._nodes if node not in gone]
        for node in gone & self._claims.keys():
            log.warning("client %s has left with node %s", self._claims.pop(node), node)
        if gone:
            self._settle()

    def _greet(self, nodes: list[int]) -> int:
        """Ask nodes who they are; return how many nodes there should be."""
        content = RecordDict({"hello": ConfigRecord({})})
        messages = [Message(content, node, "query.hello") for node in nodes]
        hellos: dict[int, Hello] = {}
        refusals: dict[int, str] = {}
        for reply in self.grid.send_and_receive(messages, timeout=HELLO_TIMEOUT):
            node = self.grid.addressee(reply)
            try:
                hellos[node] = read_hello(reply)
            except InvalidResultError as error:
                refusals[node] = error.detail
        # It may be busy with a task of a run that was stopped: asked again later.
        silent = set(nodes) - hellos.keys() - refusals.keys()
        late = dict.fromkeys(silent, f"no answer within {HELLO_TIMEOUT:g} s")
        devices = {n: h.client for n, h in hellos.items() if h.client is not None}
        if not self._claims and not devices:
            for reason in [*refusals.values(), *late.values()]:
                raise WorkerLostError(reason)
            self.simulated = True
            self._nodes += hellos
            return max(hello.nodes for hello in hellos.values())
        for node in hellos.keys() - devices.keys():
            refusals[node] = f"it has no {CLIENT_ID} in its node config"
        for node, reason in (refusals | late).items():
            log.warning("%s is left out: %s", self._name(node), reason)
        self._refused |= refusals.keys()
        self._nodes += devices
        self._claims |= devices
        self._settle()
        return self._config.clients

    def _settle(self) -> None:
        """Let each client be hosted by the one node that claims it, or by none."""
        claimants: dict[ClientId, list[int]] = defaultdict(list)
        for node, client in self._claims.items():
            claimants[client].append(node)
        hosts = {c: nodes[0] for c, nodes in claimants.items() if len(nodes) == 1}
        for client in hosts.keys() & self._hosts.keys():
            if hosts[client] != self._hosts[client]:
                log.warning(
                    "client %s has moved to %s", client, self._name(hosts[client])
                )
        disputes = {
            client: "claimed by " + " and by ".join(map(self._name, sorted(nodes)))
            for client, nodes in claimants.items()
            if len(nodes) > 1
        }
        for client in disputes.keys() - self._disputes.keys():
            log.warning("client %s is %s; both refused", client, disputes[client])
        self._hosts, self._disputes = hosts, disputes

    def _name(self, node: int) -> str:
        """Return a node's id, and the name that it was registered with, if any."""
        for info in self.grid.get_nodes():
            if info.node_id == node and info.name:
                return f"node {node} ({info.name})"
        return f"node {node}"

    def messages(self, phase: str, round: int, plan: Plan) -> list[Message]:
        """Turn a plan into one message per node."""
        self._plan, self._round = plan, round
        self._parcels = self._spread(plan.tasks)
        encoded = encode_models(plan)
        # A device is one client, and has nothing to add up.
        told = plan if self.simulated else replace(plan, fold=None)
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

    @property
    def nodes(self) -> list[int]:
        """The nodes of a simulation, each of which can do any client's task."""
        return sorted(self._nodes)

    def host(self, client: ClientId) -> int | None:
        """Return the node of a device, None if it never connected."""
        return self._hosts.get(client)

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
        shared = shared_versions(parcel.tasks, plan.fold) if self.simulated else set()
        sums: Sums = {}
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
                result = validate(answer, phase, expected)
                if plan.fold is not None:
                    add_result(outcome.sums, task, result, plan.fold)
                    result = replace(result, arrays=[])
            except InvalidResultError as error:
                failure = Failure(task.client, phase, error.reason, error.detail)
                self._note(failure)
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
            detail = self._disputes.get(client, "its device is not connected")
            raise InvalidResultError("node", detail)
        if reply is None:
            detail = "no answer within system.message_timeout"
            raise InvalidResultError("node", detail)
        if reply.has_error():
            raise InvalidResultError("node", _reason(reply))
        if not self.simulated:
            most = ROOM + 4 * (sum(errand.plan.reply) + 2 * self._floats)
            check_reply(reply.content, errand.phase, errand.round, most)
        answers = unpack_answers(reply.content)
        asked = [task.client for task in parcel.tasks]
        found = [answer.client for answer in answers]
        if not set(found) <= set(asked) or len(set(found)) < len(found):
            raise InvalidResultError("foreign", f"answers of {found}, not of {asked}")
        return {answer.client: answer for answer in answers}, reply.content

    def _note(self, failure: Failure) -> None:
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
        if failure.reason == "identity" and failure.client in self._hosts:
            self._forget({self._hosts[failure.client]}, set())


def read_hello(reply: Message) -> Hello:
    """Read what a node says about itself, trusting nothing.

    Raises
    ------
    InvalidResultError
        If it cannot run the app, runs other code, or makes no sense.
    """
    if reply.has_error():
        detail = f"a node cannot run the app: {_reason(reply)}"
        raise InvalidResultError("node", detail)
    hello = reply.content.config_records.get("hello", ConfigRecord({}))
    client, nodes = hello.get(CLIENT_ID), hello.get("nodes", 1)
    sound = client is None or is_client_id(client)
    if "code" not in hello or not sound or not isinstance(nodes, int):
        raise InvalidResultError("node", f"a node says {dict(hello)!r:.200}")
    if hello["code"] != code_digest():
        raise InvalidResultError(
            "node",
            "a worker runs other code than the server (an old local SuperLink "
            "of another checkout?); stop the flower-superlink process",
        )
    return Hello(client if isinstance(client, int | str) else None, nodes)


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
        self._sent: dict[str, int] = {}

    def addressee(self, reply: Message) -> int:
        """Return the node that a reply is expected from, once.

        For a node that left, the SuperLink answers in its own name.
        """
        metadata = reply.metadata
        return self._sent.pop(metadata.reply_to_message_id, metadata.src_node_id)

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
        """Delegate, and note which node each message goes to."""
        listed = list(messages)
        # Flower returns no id for a message that it cannot take.
        ids = list(self._grid.push_messages(listed))
        nodes = [message.metadata.dst_node_id for message in listed]
        self._sent |= {key: n for key, n in zip(ids, nodes, strict=False) if key}
        return [key for key in ids if key]

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
