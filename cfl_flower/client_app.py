"""The ClientApp: unpacks tasks, has them done, packs the answers.

Needs neither Ray nor Hydra. A SuperNode with a ``client-id`` in its node config is that
one client; a SuperNode of a simulation hosts any virtual client.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from functools import lru_cache, partial, wraps
from typing import TypeAlias

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from cfl_flower.client.node_config import CLIENT_ID, NodeConfig
from cfl_flower.client.resources import open_resources, words_of
from cfl_flower.client.task_runner import KEPT, TaskRunner
from cfl_flower.client.time_limit import interruptible
from cfl_flower.communication.identity import (
    Identity,
    asked_run,
    pack_identity,
    pack_words,
    public_key,
    read_words,
)
from cfl_flower.communication.partial_sums import PartialSums, add_answer
from cfl_flower.communication.records import mark
from cfl_flower.communication.task_records import unpack_tasks
from cfl_flower.data.reading.files import fetching
from cfl_flower.data.reading.inferred import InferredDataset
from cfl_flower.errors import (
    CflError,
    ConfigError,
    DeviceFailedError,
    one_line,
    printable,
)
from cfl_flower.secure.device import DeviceRunner
from cfl_flower.types import ClientId

log = logging.getLogger(__name__)

app = ClientApp()

NODES = "num-partitions"
"""Key of what Flower gives the nodes of a simulation: how many there are."""

Answerer: TypeAlias = Callable[[Message, Context], Message]


def keep_words(answer: Answerer) -> Answerer:
    """Let an app on a device fetch nothing, and say of errors no more than the class.

    The text can have cells, names and paths of its owner's: it stays in its own log. A
    node that Flower did not make for a simulation is a device.
    """

    @wraps(answer)
    def on_node(message: Message, context: Context) -> Message:
        if NODES in context.node_config and CLIENT_ID not in context.node_config:
            return answer(message, context)
        try:
            with fetching(False):
                return answer(message, context)
        except CflError as error:
            # What is wrong with the owner's files or settings.
            log.error("a message could not be answered: %s", one_line(str(error)))
            kind = type(error).__name__
        except Exception as error:
            log.error("a message could not be answered", exc_info=error)
            kind = type(error).__name__
        # Out here, for the other exception to be no part of it.
        raise DeviceFailedError(f"{kind}{KEPT}")

    return on_node


@app.query("identify")
@keep_words
def identify(message: Message, context: Context) -> Message:
    """Say which client this node is, or how many nodes the simulation has."""
    node = NodeConfig.of(context.node_config)
    if node is None:
        identity = Identity(nodes=int(context.node_config.get(NODES, 0)))
    else:
        run = asked_run(message.content)
        key = public_key(node.secret(run)) if run else b""
        identity = Identity(node.client, key=key)
    return Message(pack_identity(identity), reply_to=message)


@app.query("describe")
@keep_words
def describe(message: Message, context: Context) -> Message:
    """Say what a device's data are, in words, if its owner lets it."""
    node = NodeConfig.of(context.node_config)
    if node is None or not node.data_dir:
        raise ConfigError("this node has no data of its own")
    words = words_of(read_words(message.content), node)
    return Message(pack_words(json.dumps(words)), reply_to=message)


@lru_cache(maxsize=1024)
def tell_owner(run: str, client: ClientId, note: str) -> None:
    """Say in a device's own log what of its files is not read as it is, once a run."""
    log.warning("%s", printable(note))


@app.query()
@app.train()
@app.evaluate()
@keep_words
def work(message: Message, context: Context) -> Message:
    """Do all tasks of a message; one that fails costs nothing but its own result."""
    batch = unpack_tasks(message.content)
    node = NodeConfig.of(context.node_config)
    # Devices that play virtual clients share what the workers of a simulation do.
    own = node if node is not None and node.data_dir else None
    if node is not None:
        node.require_settings(json.loads(batch.settings))
    resources = open_resources(batch.settings, own)
    dataset = resources.settings["dataset"]
    if own and batch.phase == "query" and isinstance(dataset, InferredDataset):
        for note in dataset.notes(own.data_dir):
            tell_owner(resources.settings["run"], own.client, note)
    kind = partial(DeviceRunner, node=node) if node else TaskRunner
    runner = kind(resources, batch)
    sums: PartialSums = {}
    answers = []
    with interruptible():
        for task, answer in runner.run():
            left = add_answer(sums, batch, task, answer)
            if left is not None:
                answers.append(left)
    content = runner.pack(answers, sums)
    mark(content, resources.settings["run"], batch.phase, batch.round)
    return Message(content, reply_to=message)
