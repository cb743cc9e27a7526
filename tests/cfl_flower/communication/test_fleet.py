import gc
import pickle
from pathlib import Path
from typing import Any

import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from cfl_flower.client_app import app
from cfl_flower.communication.fleet import Fleet
from cfl_flower.communication.outstanding import Outstanding, PendingMessage
from cfl_flower.communication.results import Results
from cfl_flower.config.compose import compose_config
from cfl_flower.errors import WorkerLostError
from cfl_flower.models import build_model
from cfl_flower.run_config import RunConfig
from cfl_flower.types import ClientId, Plan, Task
from simulations.engines.inprocess import InProcessGrid
from tests.conftest import app_of

TOKEN = "0" * 32
"""A run's, by which devices name the folder of its state."""


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    options = ["strategy=fedavg", "clients=6", "participants=3"]
    return compose_config([*options, f"output_dir={tmp_path}/run"])


@pytest.fixture
def two(tmp_path: Path) -> RunConfig:
    options = ["strategy=fedavg", "clients=2", "participants=1"]
    return compose_config([*options, f"output_dir={tmp_path}/run"])


def plan(config: RunConfig, clients: Any) -> Plan:
    model = build_model(config.model, (1, 8, 8), 10, 0).to_vector()
    tasks = [Task(client, (0,)) for client in clients]
    return Plan(tasks, [model], {}, reply=(len(model),))


def train(fleet: Fleet, work: Plan) -> Results:
    messages = fleet.messages("train", 1, work)
    return fleet.collect(fleet.grid.send_and_receive(messages), "train")


def failing(node: int) -> ClientApp:
    """Return the client app, which cannot do anything on one node."""

    def call(message: Message, context: Context) -> Message:
        asked = message.metadata
        if (asked.dst_node_id, asked.message_type) == (node, "train"):
            raise RuntimeError("no memory left")
        return app(message, context)

    return app_of(call)


def test_tasks_are_spread_evenly_over_the_nodes_of_a_simulation(config):
    fleet = Fleet(InProcessGrid([{}, {}, {}]), config)
    fleet.discover()
    assert fleet.simulated
    assert fleet.clients == list(range(6))
    messages = fleet.messages("train", 1, plan(config, range(5)))
    assert len({message.metadata.dst_node_id for message in messages}) == 3
    assert len(fleet.messages("train", 1, plan(config, [1]))) == 1


@pytest.mark.parametrize("devices", [False, True])
def test_results_come_in_the_order_of_clients(devices, two):
    nodes = [{"client-id": client} if devices else {} for client in (1, 0)]
    fleet = Fleet(InProcessGrid(nodes), two, TOKEN)
    fleet.discover()
    assert fleet.simulated is not devices
    assert fleet.clients == [0, 1]
    outcome = train(fleet, plan(two, [1, 0]))
    assert [result.client for result in outcome] == [0, 1]
    assert outcome.failures == []


@pytest.mark.parametrize(
    ("works", "valid", "failed"), [(app, [1], [0]), (failing(1001), [], [0, 1])]
)
def test_message_that_flower_cannot_take_costs_its_device(two, works, valid, failed):
    class Unregistered(InProcessGrid):
        def push_messages(self, messages: Any) -> list[str]:
            ids = super().push_messages(messages)
            lost = [message.metadata.dst_node_id == 1000 for message in messages]
            trained = [message.metadata.message_type == "train" for message in messages]
            gone = zip(ids, lost, trained, strict=True)
            return ["" if a and b else key for key, a, b in gone]

    devices = [{"client-id": 0}, {"client-id": 1}]
    fleet = Fleet(Unregistered(devices, works), two, TOKEN)
    fleet.discover()
    outcome = train(fleet, plan(two, [0, 1]))
    assert [result.client for result in outcome] == valid
    # In the order of clients, too, though one is known to be lost only at the end.
    assert [failure.client for failure in outcome.failures] == failed


def test_lost_worker_of_a_simulation_ends_the_run(config):
    fleet = Fleet(InProcessGrid([{}, {}], failing(node=1001)), config)
    fleet.discover()
    with pytest.raises(WorkerLostError, match=r"worker was lost.*resume=true"):
        train(fleet, plan(config, range(4)))


@pytest.mark.parametrize(
    ("node", "words"),
    [({}, "a worker runs other code"), ({"client-id": 0}, "a device runs other code")],
)
def test_nodes_with_other_code_are_refused(node, words, config, monkeypatch, caplog):
    monkeypatch.setattr("cfl_flower.communication.nodes.REFUSED_TIMEOUT", 0.1)
    other = ClientApp()

    @other.query("identify")
    def hello(message: Message, context: Context) -> Message:
        reply = app(message, context)
        reply.content.config_records["identity"]["code"] = "another checkout's"
        return reply

    with pytest.raises(WorkerLostError, match=words):
        Fleet(InProcessGrid([node], other), config).discover()
    told = (
        "is left out: a device runs other code than the server; give it the same "
        "version"
    )
    assert (told in caplog.text) == bool(node)


def test_work_left_for_later_is_done_while_messages_are_on_their_way(config):
    done: list[str] = []

    class Watched(InProcessGrid):
        def pull_messages(self, message_ids: Any) -> list[Message]:
            done.append("pulled")
            return super().pull_messages(message_ids)

    fleet = Fleet(Watched([{}]), config)
    fleet.grid.meanwhile(lambda: done.append("written"))
    fleet.discover()
    assert done[:2] == ["written", "pulled"]
    fleet.grid.meanwhile(lambda: done.append("last"))
    fleet.grid.finish()
    assert done[-1] == "last"


class Silent(InProcessGrid):
    silent = False

    def pull_messages(self, message_ids: Any) -> list[Message]:
        found = super().pull_messages(message_ids)
        return [] if self.silent else found


def test_node_that_does_not_answer_is_given_up_after_the_timeout(config):
    grid = Silent([{}])
    fleet = Fleet(grid, config)
    fleet.discover()
    messages = fleet.messages("train", 1, plan(config, [0]))
    grid.silent = True
    assert fleet.grid.send_and_receive(messages, timeout=0.05) == []
    with pytest.raises(WorkerLostError, match="message_timeout"):
        fleet.collect([], "train")


def test_a_message_that_was_pushed_keeps_its_content(two):
    grid = InProcessGrid([{"client-id": client} for client in range(2)])
    fleet = Fleet(grid, two)
    fleet.discover()
    messages = fleet.messages("train", 1, plan(two, [0, 1]))
    contents = [dict(message.content) for message in messages]
    fleet.grid.push_messages(messages)
    assert [dict(message.content) for message in messages] == contents
    assert all(contents)


def pending(
    node: int | None, *clients: ClientId, phase: str = "train"
) -> PendingMessage:
    tasks = [Task(client) for client in clients]
    return PendingMessage(phase, 1, Plan(tasks), tasks, node)


def reply_to(message_id: str) -> Message:
    InProcessGrid()  # names the run, without which there are no messages
    message = Message(RecordDict(), 7, "train")
    message.metadata.__dict__["_message_id"] = message_id
    return Message(RecordDict({"a": ConfigRecord()}), reply_to=message)


def test_sent_message_is_outstanding_until_it_is_answered():
    ledger, sent = Outstanding(), pending(7, "a", "b")
    ledger.add(sent)
    assert ledger.ids == [] and ledger.clients == set()
    ledger.sent(7, "first")
    assert (ledger.ids, ledger.clients, ledger.nodes) == (["first"], {"a", "b"}, {7})
    assert ledger.answered(reply_to("another")) is None
    assert ledger.answered(reply_to("first")) is sent
    assert ledger.answered(reply_to("first")) is None, "a second answer counts no more"
    assert ledger.ids == []


def test_message_that_was_not_sent_is_returned_once_to_its_own_phase():
    ledger, refused, away = Outstanding(), pending(7, "a"), pending(None, "b")
    for each in (refused, away, pending(8, "c")):
        ledger.add(each)
    ledger.sent(8, "second")
    # A test ends no run because an asynchronous task found its device gone.
    assert ledger.unsent(["evaluate"]) == []
    assert ledger.unsent() == [refused, away]
    assert ledger.unsent() == []


def test_ledger_forgets_what_is_over():
    """Replies are answers, too late, or to a message without tasks."""
    ledger = Outstanding()
    size = len(pickle.dumps(ledger))
    for ended in (ledger.answered, lambda _: ledger.give_up(lambda _: True)):
        ledger.add(pending(7, "a"))
        ledger.sent(7, "a task")
        for key in ("a task", "a question"):
            ledger.hear(key)
        ended(reply_to("a task"))
        ledger.hear("a task")
        assert len(pickle.dumps(ledger)) == size


def test_messages_that_no_device_answers_are_forgotten(two):
    def ask() -> int:
        fleet.grid.send_and_receive([Message(RecordDict(), 7, "query")], timeout=1e-6)
        gc.collect()
        return sum(issubclass(type(each), Message) for each in gc.get_objects())

    grid = Silent([{"client-id": 0}])
    grid.silent = True
    fleet = Fleet(grid, two)
    assert [ask() for _ in range(3)] == [ask()] * 3


def test_who_has_replied_is_not_awaited_and_only_hopeless_messages_are_given_up():
    ledger = Outstanding()
    for node, phase in ((7, "train"), (8, "evaluate")):
        ledger.add(pending(node, node, phase=phase))
        ledger.sent(node, phase)
    ledger.hear("evaluate")
    assert [each.node for each in ledger.awaited(-1)] == [7]
    assert ledger.awaited(60) == []
    (lost,) = ledger.give_up(lambda each: each.phase == "train")
    assert lost.clients == [7]
    assert ledger.ids == ["evaluate"]
