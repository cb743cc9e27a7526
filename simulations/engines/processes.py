"""A Grid of worker processes on this machine: every core works, without Ray.

A worker is a node of a simulation. Where processes can be forked, they find the samples
and the network that this process has opened, and all share their memory.
"""

from __future__ import annotations

import gc
import json
import logging
import math
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Iterable, Sequence
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from threading import Thread
from typing import Any
from uuid import uuid4

from flwr.app import Message

from cfl_flower.client.resources import open_resources
from cfl_flower.client_app import app
from cfl_flower.communication.records import pack_answers
from cfl_flower.communication.task_records import unpack_tasks
from cfl_flower.environment.machine import (
    as_imported_here,
    end_with_parent,
    keep_free_memory,
)
from cfl_flower.types import Answer
from simulations.engines.choice import VISIBLE, gpu_of
from simulations.engines.inprocess import InProcessGrid
from simulations.engines.shared_arrays import SharedArrays, receive
from simulations.engines.superlink import die_with_parent

log = logging.getLogger(__name__)

IDENTIFY = "query.identify"
"""The type of the question who a node is, which needs no worker."""

SLACK = 60.0
"""Seconds that a worker may take beside its tasks, to start and to answer."""

LOOK = 1.0
"""Seconds that count at most of those between two looks for replies.

If all processes of a run are paused, no worker is late when they go on.
"""


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
        others: Sequence[socket.socket],
    ) -> None:
        context: Any = multiprocessing.get_context(start_method)
        self.connection, far = socket.socketpair()
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
        # A process that waits for a disk ends when that answers.
        self.process.join(SLACK)
        if self.process.exitcode is not None:
            self.process.close()
        self.connection.close()
        if code is not None and code < 0:
            return f"its worker process was ended by {signal.Signals(-code).name}"
        return f"its worker process ended with exit code {code}"


def time_for(message: Message) -> float:
    """Return how many seconds a worker may take for a message.

    `message_timeout`, or less if none of its tasks can take so long by `task_timeout`;
    0 is no limit.
    """
    batch = message.content.config_records["batch"]
    system = json.loads(str(batch["settings"]))["system"]
    each = system["task_timeout"]
    tasks = len(json.loads(str(batch["header"]))["tasks"])
    longest = each * tasks + SLACK if each else math.inf
    return min(system["message_timeout"] or math.inf, longest)


class ProcessGrid(InProcessGrid):
    """Hands the message of each node to a process of its own.

    Every message is answered: a worker that stands still is ended, and its clients have
    no result.
    """

    at_once = False

    def __init__(
        self, workers: int, gpus_per_worker: float = 0.0, start_method: str = ""
    ) -> None:
        nodes: list[dict[str, Any]] = [{} for _ in range(workers)]
        super().__init__(nodes)
        self._share = gpus_per_worker
        self._start_method = start_method or usual_start(gpus_per_worker)
        self._workers: dict[int, Worker] = {}
        # What each node has not answered, and until when on the clock it may take.
        self._asked: dict[int, tuple[Message, float]] = {}
        self._clock = 0.0
        self._looked = time.monotonic()

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
        """Take in replies; wait for one at most some seconds, and end who is late."""
        nodes = {self._workers[node].connection: node for node in self._asked}
        for connection in wait(list(nodes), seconds):
            node = nodes[connection]  # type: ignore[index]
            message, _ = self._asked.pop(node)
            try:
                reply = receive(self._workers[node].connection)
                self._replies[message.metadata.message_id] = reply
            except (EOFError, OSError):
                self._lose(node, message)
        now = time.monotonic()
        self._clock += min(now - self._looked, LOOK)
        self._looked = now
        for node in [n for n, (_, end) in self._asked.items() if self._clock > end]:
            message, _ = self._asked.pop(node)
            self._lose(node, message, time_for(message))

    def _send(self, message: Message, arrays: SharedArrays) -> None:
        node = message.metadata.dst_node_id
        if node not in self._workers:
            if self._start_method == "fork":
                # A forked worker shares all open files.
                batch = message.content.config_records["batch"]
                open_resources(str(batch["settings"]))
            others = [worker.connection for worker in self._workers.values()]
            config = {"num-partitions": len(self.node_configs)}
            gpu = gpu_of(list(self.node_configs).index(node), self._share)
            self._workers[node] = Worker(self._start_method, config, gpu, others)
        self._asked[node] = message, self._clock + time_for(message)
        try:
            arrays.send(message, self._workers[node].connection)
        except OSError:
            del self._asked[node]
            self._lose(node, message)

    def _lose(self, node: int, message: Message, late: float = 0.0) -> None:
        """Answer that no client of a worker has a result: it died, or is ``late``.

        That is the seconds it had. Another worker follows.
        """
        problem = ("node", self._workers.pop(node).end())
        if late:
            said = f"its worker process did not answer in {late:g} s and was ended"
            problem = ("timeout", said)
        tasks = unpack_tasks(message.content).plan.tasks
        log.warning("%s clients have no result: %s", len(tasks), problem[1])
        answers = [Answer(task.client, error=problem) for task in tasks]
        reply = Message(pack_answers(answers), reply_to=message)
        self._replies[message.metadata.message_id] = reply


def work(
    connection: socket.socket,
    config: dict[str, Any],
    gpu: str | None,
    inherited: Sequence[socket.socket],
) -> None:
    """Do the tasks of all messages that come, until the server is gone."""
    if gpu is not None:
        os.environ[VISIBLE] = gpu
    for other in inherited:
        other.close()
    # The server says what Ctrl-C ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=end_with_parent, daemon=True).start()
    # Even if this process stands still then.
    die_with_parent()
    # Freeze existing objects: the collector would touch, and so copy, shared pages.
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
