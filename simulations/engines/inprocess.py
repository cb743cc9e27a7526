"""A Grid without Ray: the same ServerApp and ClientApp in one process.

For tests, debugging and small models.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from cfl_flower.client.node_config import CLIENT_ID
from cfl_flower.client_app import app as default_app
from cfl_flower.communication.grid import SIMULATION
from cfl_flower.errors import RaisedInStrictRunError

DEVICES = "flwr-serverapp"
"""Flower's type of a run on devices."""


def name_process() -> None:
    """Give this process the numbers with which Flower's own start names messages.

    Flower has no public way to do so. Its message looks the numbers up in its module.
    """
    identity = sys.modules[Message.__module__].TaskIdentity
    identity.run_id = 1
    identity.task_id = 1
    identity.node_id = 1


class InProcessGrid(Grid):
    """Runs a ClientApp for each message at the moment it is pushed.

    There is a node for each node config: ``{"client-id": 3}`` is a device, a node of
    which nothing is said is a simulation's. A run that has a device at the start is one
    of devices.
    """

    at_once = True
    """Whether replies are there when messages have been pushed."""
    run: Any = None
    """What is read of Flower's record of the run."""

    def __init__(
        self,
        node_configs: Iterable[dict[str, Any]] = ({},),
        client_app: ClientApp = default_app,
    ) -> None:
        name_process()
        self.client_app = client_app
        self.node_configs: dict[int, dict[str, Any]] = {}
        self._replies: dict[str, Message] = {}
        self._last = 999
        for config in node_configs:
            self.add_node(config)
        devices = any(CLIENT_ID in each for each in self.node_configs.values())
        kind = DEVICES if devices else SIMULATION
        self.run = SimpleNamespace(run_id=1, primary_task_type=kind)

    def add_node(self, node_config: dict[str, Any]) -> int:
        """Let a node join, at any time."""
        self._last += 1
        self.node_configs[self._last] = dict(node_config)
        return self._last

    def remove_node(self, node: int) -> None:
        """Let a node leave."""
        del self.node_configs[node]

    def set_run(self, run: object) -> None:
        """Do nothing, because there is one run."""

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        """Refuse: Flower has deprecated it, and nobody calls it."""
        raise NotImplementedError

    def get_node_ids(self) -> list[int]:
        """Return the nodes that are there."""
        return list(self.node_configs)

    def get_nodes(self) -> list[Any]:
        """Return nothing: no node has a record."""
        return []

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Do the work of each message and keep the reply."""
        ids = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = str(uuid4())
            ids.append(message.metadata.message_id)
            self._replies[ids[-1]] = self.answer(message)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Hand out replies once."""
        return [self._replies.pop(key) for key in message_ids if key in self._replies]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Do the work of each message and return the replies."""
        return self.pull_messages(self.push_messages(messages))

    def answer(self, message: Message) -> Message:
        """Return the reply of a node to a message."""
        node = message.metadata.dst_node_id
        if node not in self.node_configs:
            # As the SuperLink answers, in its own name, for one without a heartbeat.
            reply = Message(Error(5, "the node is not available"), reply_to=message)
            reply.metadata.__dict__["_src_node_id"] = 1
            return reply
        # As in Flower: only a simulation's nodes are told how many there are.
        config = self.node_configs[node] or {"num-partitions": len(self.node_configs)}
        context = Context(1, node, config, RecordDict(), {})
        try:
            return self.client_app(message, context)
        except RaisedInStrictRunError as stop:
            raised = stop.__cause__
        except Exception as error:  # noqa: BLE001 - as Flower: an error reply
            reason = f"{type(error).__name__}: {error}"
            return Message(Error(2, reason), reply_to=message)
        assert raised is not None
        # Out here, for the exception to keep its own cause and context.
        raise raised
