"""A Grid of worker processes on this machine: every core works, without Ray.

A worker is a node of a simulation. Where processes can be forked, they find the samples
and the network that this process has opened, and all share their memory.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from threading import Thread
from typing import Any
from uuid import uuid4

from flwr.app import Message

from cfl_flower.client.resources import open_resources
from cfl_flower.client_app import app
from cfl_flower.communication.records import pack_answers, unpack_tasks
from cfl_flower.environment.memory import keep_free_memory
from cfl_flower.environment.process import as_imported_here, end_with_parent
from cfl_flower.types import Answer
from simulations.engines.choice import VISIBLE, gpu_of
from simulations.engines.inprocess import InProcessGrid
from simulations.engines.shared_arrays import SharedArrays, receive

log = logging.getLogger(__name__)

IDENTIFY = "query.identify"
"""The type of the question who a node is, which needs no worker."""


def usual_start(gpus: float) -> str:
    """Return how processes are started: by a fork, but for CUDA, which survives none.

    Nor do the libraries of macOS.
    """
    return "fork" if sys.platform == "linux" and not gpus else "spawn"


class Worker:
    """A process that does the tasks of one message after another."""

    def __init__(
        self,
        start_method: str,
        config: dict[str, Any],
        gpu: str | None,
        others: Sequence[Connection],
    ) -> None:
        context: Any = multiprocessing.get_context(start_method)
        self.connection, far = context.Pipe()
        # A forked process has all that is open here, the others' connections, too.
        inherited = [self.connection, *others] if start_method == "fork" else []
        arguments = (far, config, gpu, inherited)
        # No daemon: those may have no processes, as a client's DataLoader has.
        self.process: BaseProcess = context.Process(target=work, args=arguments)
        with as_imported_here():
            self.process.start()
        far.close()

    def end(self) -> str:
        """End the process; return how it ended, if it had before."""
        self.process.join(0.5)
        code = self.process.exitcode
        self.process.kill()
        self.process.join()
        self.process.close()
        self.connection.close()
        if code is not None and code < 0:
            return f"its worker process was ended by {signal.Signals(-code).name}"
        return f"its worker process ended with exit code {code}"


class ProcessGrid(InProcessGrid):
    """Hands the message of each node to a process of its own."""

    at_once = False

    def __init__(
        self, workers: int, gpus_per_worker: float = 0.0, start_method: str = ""
    ) -> None:
        nodes: list[dict[str, Any]] = [{} for _ in range(workers)]
        super().__init__(nodes)
        self._share = gpus_per_worker
        self._start_method = start_method or usual_start(gpus_per_worker)
        self._workers: dict[int, Worker] = {}
        self._asked: dict[int, Message] = {}

    def close(self) -> None:
        """End all processes."""
        for worker in self._workers.values():
            worker.process.kill()
        for worker in self._workers.values():
            worker.end()
        self._workers = {}

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Send each message to the process of its node."""
        ids = []
        arrays = SharedArrays()
        for message in messages:
            message.metadata.__dict__["_message_id"] = str(uuid4())
            ids.append(message.metadata.message_id)
            if message.metadata.message_type == IDENTIFY:
                self._replies[ids[-1]] = self.answer(message)
            else:
                self._send(message, arrays)
        arrays.close()
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Hand out the replies that are there, once."""
        self.wait(0)
        return super().pull_messages(message_ids)

    def wait(self, seconds: float) -> None:
        """Take in replies; wait for one at most some seconds."""
        nodes = {self._workers[node].connection: node for node in self._asked}
        for connection in wait(list(nodes), seconds):
            node = nodes[connection]
            message = self._asked.pop(node)
            try:
                reply = receive(self._workers[node].connection)
            except (EOFError, OSError):
                reply = self._lost(node, message)
            self._replies[message.metadata.message_id] = reply

    def _send(self, message: Message, arrays: SharedArrays) -> None:
        node = message.metadata.dst_node_id
        if node not in self._workers:
            if self._start_method == "fork":
                # What is open when a worker is forked is shared with it.
                batch = message.content.config_records["batch"]
                open_resources(str(batch["settings"]))
            others = [worker.connection for worker in self._workers.values()]
            config = {"num-partitions": len(self.node_configs)}
            gpu = gpu_of(list(self.node_configs).index(node), self._share)
            self._workers[node] = Worker(self._start_method, config, gpu, others)
        self._asked[node] = message
        try:
            arrays.send(message, self._workers[node].connection)
        except OSError:
            del self._asked[node]
            key = message.metadata.message_id
            self._replies[key] = self._lost(node, message)

    def _lost(self, node: int, message: Message) -> Message:
        """Return failures of all clients whose worker died; another one follows."""
        reason = self._workers.pop(node).end()
        tasks = unpack_tasks(message.content).plan.tasks
        log.warning("%s clients have no result: %s", len(tasks), reason)
        answers = [Answer(task.client, error=("node", reason)) for task in tasks]
        return Message(pack_answers(answers), reply_to=message)


def work(
    connection: Connection,
    config: dict[str, Any],
    gpu: str | None,
    inherited: Sequence[Connection],
) -> None:
    """Do the tasks of all messages that come, until the server is gone."""
    if gpu is not None:
        os.environ[VISIBLE] = gpu
    for other in inherited:
        other.close()
    # The server says what Ctrl-C ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=end_with_parent, daemon=True).start()
    # What is there is not looked at again: it stays, and in the memory of all.
    gc.freeze()
    keep_free_memory()
    node = InProcessGrid([config], app)
    (name,) = node.get_node_ids()
    while True:
        try:
            message = receive(connection)
        except (EOFError, OSError):
            return
        message.metadata.__dict__["_dst_node_id"] = name
        reply = node.answer(message)
        arrays = SharedArrays()
        arrays.send(reply, connection)
        arrays.close()
        # The memory of the models and the results goes before there are new ones.
        del message, reply, arrays
        gc.collect()
