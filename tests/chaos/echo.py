"""What a device is made to do that answers twice, or as in an earlier round.

The processes of a device call `obey` at their start (`prepare`), and carry out an
order, a file in the device's folder of orders, once: ``twice`` pushes a reply again,
with the one before it, a second after it was sent; ``earlier`` puts the answer of an
earlier round into the reply to this one. Else the device is as it is, but for its
heart, which beats faster, so that its death is noticed in 20 seconds instead of 60.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from threading import Thread
from typing import Any

from flwr.app import Message
from flwr.clientapp import ClientApp
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as WireRecords
from flwr.supercore import heartbeat
from flwr.supernode import fleet_http_connection
from flwr.supernode.fleet_http_client import FleetHttpClient

TWICE = "twice"
EARLIER = "earlier"
PHASES = ("train", "evaluate")
NODE = "flower_supernode.py"
APP = "flwr-clientapp"
"""Words of the command lines of a device's processes."""
BEAT = 10
"""Seconds of Flower's heartbeat, twice which a node is missed after."""


def prepare(folder: Path) -> str:
    """Write what Python runs at its start, and return the folder it looks into.

    ``folder`` is that of a device's orders.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lines = (
        "import sys",
        # No other process is held up by what this imports.
        f"if any(word in ' '.join(sys.orig_argv) for word in {(NODE, APP)}):",
        "    from pathlib import Path",
        "    from tests.chaos.echo import obey",
        f"    obey(Path({str(folder)!r}))",
    )
    (folder / "sitecustomize.py").write_text("\n".join(lines) + "\n")
    return str(folder)


def obey(folder: Path) -> None:
    """Have the process of a device that this is called in carry out its orders."""
    if NODE in " ".join(sys.orig_argv):
        _beat_faster()
        _push_twice(folder)
    else:
        _answer_earlier(folder)


def take(order: Path) -> bool:
    """Return whether there was an order, which is carried out now."""
    try:
        order.unlink()
    except FileNotFoundError:
        return False
    return True


def _beat_faster() -> None:
    for module in (heartbeat, fleet_http_connection):
        vars(module)["HEARTBEAT_DEFAULT_INTERVAL"] = BEAT


def _push_twice(folder: Path) -> None:
    push = FleetHttpClient.PushMessages
    sent = list[Any]()

    def push_again(client: FleetHttpClient, requests: list[Any]) -> None:
        time.sleep(1)  # By then the reply and its objects are there.
        for request in requests:
            push(client, request)

    def answer(client: FleetHttpClient, request: Any) -> Any:
        response = push(client, request)
        sent[:] = [*sent[-1:], request]
        if take(folder / TWICE):
            Thread(target=push_again, args=(client, [*sent]), daemon=True).start()
        return response

    setattr(FleetHttpClient, push.__name__, answer)


def _answer_earlier(folder: Path) -> None:
    honest = ClientApp.__call__

    def answer(app: ClientApp, message: Message, context: Any) -> Message:
        reply = honest(app, message, context)
        phase = message.metadata.message_type
        now = message.metadata.group_id
        if phase not in PHASES:
            return reply
        kept = folder / f"{phase}.reply"
        # Round and answer. That of a round that is repeated would be valid.
        old = kept.read_bytes().partition(b" ") if kept.exists() else (now, b"", b"")
        if int(old[0]) < int(now) and take(folder / EARLIER):
            content = recorddict_from_proto(WireRecords.FromString(old[2]))
            return Message(content, reply_to=message)
        wire = recorddict_to_proto(reply.content).SerializeToString()
        # Whole or not at all, as this process may be killed at any time.
        fresh = kept.with_suffix(".new")
        fresh.write_bytes(b"%s %s" % (now.encode(), wire))
        fresh.replace(kept)
        return reply

    setattr(ClientApp, honest.__name__, answer)
