"""The ledger of messages that have not been answered."""

from __future__ import annotations

from flwr.app import ConfigRecord, Message, RecordDict

from cfl_flower.communication.outstanding import Outstanding, PendingMessage
from cfl_flower.types import ClientId, Plan, Task
from simulations.engines.inprocess import InProcessGrid


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


def test_sent_message_is_outstanding_until_it_is_answered() -> None:
    ledger, sent = Outstanding(), pending(7, "a", "b")
    ledger.add(sent)
    assert ledger.ids == [] and ledger.clients == set()
    ledger.sent(7, "first")
    assert (ledger.ids, ledger.clients, ledger.nodes) == (["first"], {"a", "b"}, {7})
    assert ledger.answered(reply_to("another")) is None
    assert ledger.answered(reply_to("first")) is sent
    assert ledger.answered(reply_to("first")) is None, "a second answer counts no more"
    assert ledger.ids == []


def test_message_that_was_not_sent_is_returned_once() -> None:
    ledger, refused, away = Outstanding(), pending(7, "a"), pending(None, "b")
    for each in (refused, away, pending(8, "c")):
        ledger.add(each)
    ledger.sent(8, "second")
    assert ledger.unsent() == [refused, away]
    assert ledger.unsent() == []


def test_message_of_another_phase_that_was_not_sent_waits_for_its_own() -> None:
    """A test ends no run because an asynchronous task found its device gone."""
    ledger, task = Outstanding(), pending(None, "a", phase="train")
    ledger.add(task)
    assert ledger.unsent(["evaluate"]) == []
    assert ledger.unsent() == [task]


def test_only_hopeless_messages_are_given_up() -> None:
    ledger = Outstanding()
    for node, phase in ((7, "train"), (8, "evaluate")):
        ledger.add(pending(node, node, phase=phase))
        ledger.sent(node, phase)
    (lost,) = ledger.give_up(lambda each: each.phase == "train")
    assert lost.clients == [7]
    assert ledger.ids == ["evaluate"]


def test_message_without_tasks_is_not_outstanding() -> None:
    ledger = Outstanding()
    ledger.sent(7, "identity")
    assert ledger.ids == []
