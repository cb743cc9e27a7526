"""Flower's grid, looked at more often."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable
from copy import copy
from typing import Any

from flwr.app import Error, Message, RecordDict
from flwr.serverapp import Grid
from google.protobuf.message import DecodeError

from cfl_flower.communication.outstanding import Outstanding

log = logging.getLogger(__name__)

PAUSE = 0.25
"""The longest wait, in seconds, between two looks for replies."""

REQUESTS = 50
"""Requests of one look into which the replies of devices are divided."""

UNREADABLE = 3
"""Flower's code of a message that is not available."""

UNDECODABLE = (
    *(ArithmeticError, AttributeError, LookupError, TypeError, ValueError),
    *(DecodeError, RecursionError),
)
"""Errors that Flower raises for a malformed reply."""


SIMULATION = "flwr-simulation"
"""Flower's type of a run whose nodes it makes itself, by the federation it runs in."""


class PatientGrid:
    """Flower's grid with a short, growing wait between looks for replies.

    Flower looks every 0.1 s, which doubles a round whose phases take as long. All else
    is Flower's: what is not defined here is delegated.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._pending: list[Callable[[], None]] = []
        self._asked: dict[str, Message] = {}
        self.outstanding = Outstanding()
        self.last_asked: set[int] = set()
        """The nodes to which the last messages went."""
        self.on_pause: Callable[[], object] = list
        """Called at every wait."""
        self.of_devices = grid.run.primary_task_type != SIMULATION
        """Whether replies may come from devices, and be what cannot be decoded."""

    def meanwhile(self, work: Callable[[], None]) -> None:
        """Do some work while the next messages are on their way."""
        self._pending.append(work)

    def finish(self) -> None:
        """Do now what was left for later."""
        while self._pending:
            self._pending.pop(0)()

    @property
    def answers_all(self) -> bool:
        """Whether no message stays without a reply, however long that takes.

        A grid on this machine ends workers that are late, and replies for them.
        """
        return hasattr(self._grid, "wait")

    def pause(self, elapsed: float) -> None:
        """Wait before the next look: short at first, the longer the more has passed."""
        self.on_pause()
        if self.answers_all:
            # It knows when a reply is there.
            self._grid.wait(PAUSE)  # type: ignore[attr-defined]
        else:
            time.sleep(min(max(0.03 * elapsed, 0.003), PAUSE))

    def __getattr__(self, name: str) -> Any:
        # A copy has no attributes yet, when it is asked for some.
        return getattr(vars(self).get("_grid"), name)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Push messages; return their ids, empty for one that Flower cannot take."""
        listed = list(messages)
        self.last_asked = {each.metadata.dst_node_id for each in listed}
        pushed = list(self._grid.push_messages(listed))
        ids = [key or "" for key in pushed] + [""] * (len(listed) - len(pushed))
        for key, message in zip(ids, listed, strict=True):
            if key:
                self.outstanding.sent(message.metadata.dst_node_id, key)
                if self.of_devices:
                    self._asked[key] = copy(message)
                    self._asked[key].content = RecordDict()
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies that are there, to some messages.

        Flower decodes what it hands out, and one reply that it cannot decode loses all
        of a request. So those of devices are fetched in many requests, up to `REQUESTS`
        one by one; in the place of what is lost there is a reply with an error.
        """
        keys = list(message_ids)
        found = list[Message]()
        size = -(-len(keys) // REQUESTS) if self.of_devices else len(keys)
        for start in range(0, len(keys), size or 1):
            part = keys[start : start + size]
            try:
                found.extend(self._grid.pull_messages(part))
            except UNDECODABLE as error:
                if not self.of_devices:
                    raise
                found.extend(self._unreadable(key, error) for key in part)
        for reply in found:
            self._asked.pop(reply.metadata.reply_to_message_id, None)
            self.outstanding.hear(reply.metadata.reply_to_message_id)
        return found

    def _unreadable(self, key: str, error: Exception) -> Message:
        """Return an error in the place of a reply that Flower cannot decode."""
        reason = f"the reply cannot be decoded: {type(error).__name__}: {error}"
        log.warning("message %s: %s", key, reason)
        return Message(Error(UNREADABLE, reason), reply_to=self._asked[key])

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Push messages and wait for the replies, at most ``timeout`` seconds."""
        start = time.monotonic()
        longest = math.inf if self.answers_all else timeout or math.inf
        if getattr(self._grid, "at_once", False):
            # There is no meanwhile: a round would be saved a round late.
            self.finish()
        waiting = set(self.push_messages(messages)) - {""}
        replies = list[Message]()
        self.finish()
        while waiting:
            found = list(self.pull_messages(waiting))
            replies.extend(found)
            waiting -= {reply.metadata.reply_to_message_id for reply in found}
            elapsed = time.monotonic() - start
            if not waiting or elapsed > longest:
                break
            self.pause(elapsed)
        for key in waiting:
            self._asked.pop(key, None)
        return replies
