"""The one ledger of messages with tasks that have been sent and not been answered.

Rounds wait for all of them, asynchronous methods for any (`asynchronous`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from flwr.app import Message

from cfl_flower.types import ClientId, Plan, Task, Version

PHASES = ("query", "train", "evaluate")


@dataclass(frozen=True)
class PendingMessage:
    """Tasks that were sent to a node."""

    phase: str
    """``query``, ``train`` or ``evaluate``."""
    round: int
    plan: Plan
    """The plan of the tasks."""
    tasks: list[Task]
    node: int | None
    """None for a device that is not connected."""
    summed: Collection[Version] = ()
    """Versions that the node adds up."""
    sent: float = field(default_factory=time.monotonic)
    """When, on the monotonic clock."""
    heard: bool = False
    """Whether a reply has come, which may not be read yet."""

    @property
    def clients(self) -> list[ClientId]:
        """The clients whose tasks these are."""
        return [task.client for task in self.tasks]


class Outstanding:
    """What has been planned for nodes and not been answered.

    A node has at most one message at a time, so an entry is found by its node until it
    is sent, and by the id of its message from then on.
    """

    def __init__(self) -> None:
        self._planned: list[PendingMessage] = []
        self._sent: dict[str, PendingMessage] = {}

    def add(self, pending: PendingMessage) -> None:
        """Enter a message that is about to be sent."""
        self._planned.append(pending)

    def sent(self, node: int, message_id: str) -> None:
        """Note that the message to a node was sent, if it has tasks."""
        for pending in self._planned:
            if pending.node == node:
                self._planned.remove(pending)
                self._sent[message_id] = pending
                return

    def unsent(self, phases: Collection[str] = PHASES) -> list[PendingMessage]:
        """Remove and return what could not be sent: its node is not connected."""
        found = [pending for pending in self._planned if pending.phase in phases]
        self._planned = [each for each in self._planned if each.phase not in phases]
        return found

    def answered(self, reply: Message) -> PendingMessage | None:
        """Remove and return what a reply answers; None if nothing of this."""
        # By the message's id: for a node that left, the SuperLink replies in its name.
        return self._sent.pop(reply.metadata.reply_to_message_id, None)

    def hear(self, message_id: str) -> None:
        """Note that a reply has come, if it is to a message with tasks."""
        if pending := self._sent.get(message_id):
            self._sent[message_id] = replace(pending, heard=True)

    def awaited(self, seconds: float) -> list[PendingMessage]:
        """Return what has had no reply for that long."""
        late = time.monotonic() - seconds
        silent = [pending for pending in self._sent.values() if not pending.heard]
        return [pending for pending in silent if pending.sent < late]

    def give_up(
        self, hopeless: Callable[[PendingMessage], bool]
    ) -> list[PendingMessage]:
        """Remove and return what will not be answered."""
        lost = [name for name, pending in self._sent.items() if hopeless(pending)]
        return [self._sent.pop(name) for name in lost]

    @property
    def ids(self) -> list[str]:
        """The ids of the messages that may still be answered."""
        return list(self._sent)

    @property
    def clients(self) -> set[ClientId]:
        """The clients whose tasks were sent and not answered."""
        return {c for pending in self._sent.values() for c in pending.clients}

    @property
    def nodes(self) -> set[int | None]:
        """The nodes that have not answered."""
        return {pending.node for pending in self._sent.values()}
