"""Flower's grid, looked at more often."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from flwr.app import Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.run import Run

from cfl_flower.communication.outstanding import Outstanding

PAUSE = 0.25
"""The longest wait, in seconds, between two looks for replies."""


def pause(elapsed: float) -> None:
    """Wait before the next look: short at first, the longer the more has passed."""
    time.sleep(min(max(0.03 * elapsed, 0.003), PAUSE))


class PatientGrid(Grid):
    """Flower's grid with a short, growing wait between looks for replies.

    Flower looks every 0.1 s, which doubles a round whose phases take as long.

    Attributes
    ----------
    outstanding : Outstanding
        The messages with tasks that have not been answered.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._pending: list[Callable[[], None]] = []
        self.outstanding = Outstanding()

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

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Delegate, and note which messages were sent.

        Returns
        -------
        list of str
            The id of each message; empty for one that Flower cannot take.
        """
        listed = list(messages)
        pushed = list(self._grid.push_messages(listed))
        ids = [key or "" for key in pushed] + [""] * (len(listed) - len(pushed))
        for key, message in zip(ids, listed, strict=True):
            if key:
                self.outstanding.sent(message.metadata.dst_node_id, key)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Delegate."""
        return self._grid.pull_messages(message_ids)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Push messages and wait for the replies, at most ``timeout`` seconds."""
        start = time.monotonic()
        waiting, replies = set(self.push_messages(messages)) - {""}, list[Message]()
        self.finish()
        while waiting:
            found = list(self.pull_messages(waiting))
            replies.extend(found)
            waiting -= {reply.metadata.reply_to_message_id for reply in found}
            elapsed = time.monotonic() - start
            if not waiting or (timeout and elapsed > timeout):
                break
            pause(elapsed)
        return replies
