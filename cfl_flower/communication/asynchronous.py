"""Tasks that are under way each on its own, without a barrier between them.

Where a phase of a synchronous method sends to all nodes and waits for all, here every
node has at most one message, and what it answers is taken in when it arrives. So every
node is kept busy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from cfl_flower.communication.fleet import RESUME, Fleet
from cfl_flower.communication.outstanding import PendingMessage
from cfl_flower.errors import WorkerLostError
from cfl_flower.types import ClientId, Failure, Plan, Result

AHEAD = 4
"""Messages into which a node's share of the waiting tasks is divided: small ones come
back soon, large ones spare overhead."""


def send(
    fleet: Fleet,
    phase: str,
    server_round: int,
    waiting: Sequence[ClientId],
    plan: Callable[[Sequence[ClientId]], Plan],
) -> None:
    """Send tasks to every node that is free, of the most urgent clients first.

    ``waiting`` has the clients in this order; ``plan`` returns the plan of some.
    Raises `WorkerLostError` if a simulation's worker has left.
    """
    for node, clients in _spread(fleet, waiting):
        messages = fleet.messages(phase, server_round, plan(clients), node)
        fleet.grid.push_messages(messages)


def _spread(
    fleet: Fleet, waiting: Sequence[ClientId]
) -> list[tuple[int, Sequence[ClientId]]]:
    busy = fleet.outstanding.nodes
    if not fleet.simulated:
        hosts = [(fleet.host(client), [client]) for client in waiting]
        return [(n, own) for n, own in hosts if n is not None and n not in busy]
    size = -(-len(waiting) // (AHEAD * len(fleet.nodes))) or 1
    free = [node for node in fleet.nodes if node not in busy]
    parts = [waiting[i : i + size] for i in range(0, len(waiting), size)]
    return list(zip(free, parts, strict=False))


def wait(fleet: Fleet, timeout: float) -> list[Result | Failure]:
    """Return the next answers, of a simulation within ``timeout`` seconds.

    Raises `WorkerLostError` if a simulation's worker died, or did not answer.
    """
    start = time.monotonic()
    while fleet.outstanding.ids or not fleet.simulated:
        if answers := look(fleet):
            return answers
        elapsed = time.monotonic() - start
        if timeout and elapsed > timeout and not fleet.grid.answers_all:
            break
        fleet.grid.pause(elapsed)
    if fleet.outstanding.ids and fleet.simulated:
        raise WorkerLostError(f"a worker did not answer in {timeout:g} s; {RESUME}")
    return []


def give_up(fleet: Fleet, patience: float) -> list[Failure]:
    """Return as failures the tasks that devices have not answered.

    Of devices that left, and of those that took more than ``patience`` seconds.
    """
    if fleet.simulated:
        return []
    now = time.monotonic()

    def reason(pending: PendingMessage) -> str:
        if now - pending.sent > patience:
            return f"no answer within {patience:g} s"
        moved = fleet.host(pending.clients[0]) != pending.node
        return "it has left" if moved else ""

    given_up = fleet.outstanding.give_up(lambda each: bool(reason(each)))
    return [Failure(e.clients[0], e.phase, "node", reason(e)) for e in given_up]


def look(fleet: Fleet) -> list[Result | Failure]:
    """Return what has been answered by now."""
    unsent = fleet.outstanding.unsent()
    ids = fleet.outstanding.ids
    results = fleet.collect(fleet.grid.pull_messages(ids) if ids else [])
    for pending in unsent:
        # The node has left since `send` looked for free ones.
        fleet.read_reply(pending, None, results)
    return [*results, *results.failures]
