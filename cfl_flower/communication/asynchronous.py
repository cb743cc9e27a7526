"""Tasks that are under way each on its own, without a barrier between them.

Where a phase of a synchronous method sends to all nodes and waits for all, here every
node has at most one message, and what it answers is taken in when it arrives.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence

from cfl_flower.communication.fleet import RESUME, Errand, Fleet, Outcome, Parcel
from cfl_flower.communication.grid import pause
from cfl_flower.communication.records import encode_models
from cfl_flower.errors import WorkerLostError
from cfl_flower.types import ClientId, Failure, Plan, Result

AHEAD = 4
"""Messages into which a node's share of the waiting tasks is divided: small ones come
back soon, large ones spare overhead."""


class AsyncDispatcher:
    """Keeps every node busy, one message at a time.

    Parameters
    ----------
    fleet : Fleet
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._errands: dict[str, Errand] = {}
        self._sent: dict[str, float] = {}
        self._unsent = Outcome()

    @property
    def travelling(self) -> set[ClientId]:
        """The clients whose task is under way."""
        return {
            task.client
            for errand in self._errands.values()
            for task in errand.parcel.tasks
        }

    def send(
        self,
        phase: str,
        round: int,
        waiting: Sequence[ClientId],
        plan: Callable[[Sequence[ClientId]], Plan],
    ) -> None:
        """Send tasks to every node that is free.

        Parameters
        ----------
        phase : str
        round : int
        waiting : sequence of ClientId
            Whose task is to be sent, the most urgent first.
        plan : callable
            Returns the plan of some clients' tasks.

        Raises
        ------
        WorkerLostError
            If a simulation's worker has left.
        """
        for node, clients in self._spread(waiting):
            made = plan(clients)
            parcel = Parcel(node, made.tasks)
            message = self._fleet.address(
                phase, round, made, parcel, encode_models(made)
            )
            errand = Errand(phase, round, made, parcel)
            names = list(self._fleet.grid.push_messages([message]))
            if not names:
                # The node has said goodbye since somebody looked around.
                self._fleet.open(errand, None, self._unsent)
            for name in names:
                self._errands[name] = errand
                self._sent[name] = time.monotonic()

    def _spread(
        self, waiting: Sequence[ClientId]
    ) -> list[tuple[int, Sequence[ClientId]]]:
        busy = {errand.parcel.node for errand in self._errands.values()}
        if not self._fleet.simulated:
            hosts = [(self._fleet.host(client), [client]) for client in waiting]
            return [(n, own) for n, own in hosts if n is not None and n not in busy]
        nodes = self._fleet.nodes
        size = -(-len(waiting) // (AHEAD * len(nodes))) or 1
        free = [node for node in nodes if node not in busy]
        parts = [waiting[i : i + size] for i in range(0, len(waiting), size)]
        return list(zip(free, parts, strict=False))

    def wait(self, timeout: float) -> list[Result | Failure]:
        """Return what the next nodes that answer say, after a while at most.

        Parameters
        ----------
        timeout : float
            Seconds; a real device may let the server wait for longer.

        Raises
        ------
        WorkerLostError
            If a simulation's worker died, or did not answer.
        """
        start = time.monotonic()
        while self._errands or not self._fleet.simulated:
            answers = self.look()
            elapsed = time.monotonic() - start
            if answers:
                return answers
            if timeout and elapsed > timeout:
                break
            pause(elapsed)
        if self._errands and self._fleet.simulated:
            raise WorkerLostError(f"a worker did not answer in {timeout:g} s; {RESUME}")
        return []

    def give_up(self, patience: float) -> list[Failure]:
        """Forget, and return as failures, what will not come back from real devices.

        Parameters
        ----------
        patience : float
            Seconds after which an answer is not waited for any more.
        """
        failures = []
        for name, errand in list(self._errands.items()):
            (task, *_), node = errand.parcel.tasks, errand.parcel.node
            late = time.monotonic() - self._sent[name] > patience
            if self._fleet.simulated or not (
                late or self._fleet.host(task.client) != node
            ):
                continue
            del self._errands[name]
            detail = f"no answer within {patience:g} s" if late else "it has left"
            failures.append(Failure(task.client, errand.phase, "node", detail))
        return failures

    def look(self) -> list[Result | Failure]:
        """Return what has been answered by now."""
        outcome, self._unsent = self._unsent, Outcome()
        names = list(self._errands)
        for reply in self._fleet.grid.pull_messages(names) if names else []:
            errand = self._errands.pop(reply.metadata.reply_to_message_id)
            self._fleet.open(errand, reply, outcome)
        return [*outcome.results, *outcome.failures]


REST = 10.0
"""Seconds until a device that failed is asked again."""

TRIES = 3
"""Failures in a row after which nothing more is hoped of a device."""


class Backoff:
    """The failures of every client since it last succeeded."""

    def __init__(self) -> None:
        self._failures: Counter[ClientId] = Counter()
        self._until: dict[ClientId, float] = {}

    def note(self, client: ClientId, sound: bool) -> None:
        """Note that a client succeeded, or failed and rests from now on."""
        if sound:
            del self._failures[client]
            self._until.pop(client, None)
            return
        self._failures[client] += 1
        self._until[client] = time.monotonic() + REST

    @property
    def resting(self) -> set[ClientId]:
        """The clients that are not to be asked now."""
        now = time.monotonic()
        return {client for client, until in self._until.items() if now < until}

    def hopeless(self, clients: Collection[ClientId]) -> bool:
        """Return whether every one of some clients fails again and again."""
        failed = [self._failures[client] >= TRIES for client in clients]
        return bool(failed) and all(failed)
