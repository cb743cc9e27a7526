"""The connected nodes, and the client that each of them hosts.

A node of a simulation can do the task of any virtual client. A real device is one
client, named in its node config, whatever its node id.
"""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime

from flwr.app import Message
from flwr.serverapp import Grid

from cfl_flower.communication.grid import PatientGrid
from cfl_flower.communication.identity import (
    OTHER_CODE,
    FirstKeys,
    Identity,
    ask_identity,
    read_identity,
)
from cfl_flower.errors import InvalidResultError, WorkerLostError, printable
from cfl_flower.types import ClientId, Json, client_order

log = logging.getLogger(__name__)

JOIN_TIMEOUT = 60.0
"""Seconds to wait at the start for nodes, and for the configured number of devices."""

IDENTIFY_TIMEOUT = 120.0
"""Seconds that a node may take to identify itself: a small device imports for a while.
One that takes longer is busy or hangs. Nobody waits for it, but it is asked again from
time to time, and its answer counts whenever it comes."""

NODE_UNAVAILABLE = 5
"""Flower's code of what the SuperLink answers for a node that has left."""

REFUSED_TIMEOUT = 10.0
"""Seconds to wait for another node at the start if all connected ones were refused."""

SAY_EVERY = 60.0
"""Seconds between two lines on who is waited for."""

MOST_NAMES = 5
"""Devices that are named in such a line."""

OTHER_WORKER = (
    "a worker runs other code than the server (an old local SuperLink of another "
    "checkout?); stop the flower-superlink process"
)


class NodeRegistry:
    """The clients of a run and the nodes that host them.

    ``expected`` is how many clients the run is configured for, ``patience`` the seconds
    to wait at the start for nodes that are busy; 0 for no limit. Whether nodes are
    ``simulated`` is what Flower says of the run, never what a node says. ``disputes``
    has the clients that several nodes claim to be, with the nodes' names. Devices whose
    results are to be masked report their public keys for the run of ``first_keys``,
    which remembers the one that each client announced first; it is None without masks.
    """

    def __init__(
        self,
        grid: Grid,
        expected: int,
        patience: float = 0.0,
        first_keys: FirstKeys | None = None,
    ) -> None:
        self.grid = PatientGrid(grid)
        self.simulated = not self.grid.of_devices
        self._expected = expected
        self._patience = patience or math.inf
        self._keys: dict[int, bytes] = {}
        self._first_keys = first_keys
        self._nodes: list[int] = []
        self._claims: dict[int, ClientId] = {}
        self._hosts: dict[ClientId, int] = {}
        self._refused: dict[int, str] = {}
        self._asked: dict[int, float] = {}
        """When nodes were asked who they are, on the monotonic clock."""
        self._queries: dict[str, int] = {}
        self._said = -math.inf
        self._begun = time.time()
        self._missing: dict[ClientId, float] = {}
        """Devices that were there and are not, and since when."""
        self.names: dict[ClientId, str] = {}
        """The names with which devices were registered, of those that have one."""
        self.disputes: dict[ClientId, str] = {}

    @property
    def clients(self) -> list[ClientId]:
        """All clients that can be reached, in client-id order."""
        if self.simulated:
            return list(range(self._expected))
        return sorted(self._hosts, key=client_order)

    @property
    def nodes(self) -> list[int]:
        """The nodes of a simulation, each of which can do any client's task."""
        return sorted(self._nodes)

    def host(self, client: ClientId) -> int | None:
        """Return the node of a device, None if it never connected."""
        return self._hosts.get(client)

    def reachable(self, clients: Iterable[ClientId]) -> list[ClientId]:
        """Return those of some clients that are there: in a simulation, all."""
        return [c for c in clients if self.simulated or self.host(c) is not None]

    @property
    def keys(self) -> dict[ClientId, bytes]:
        """The public keys of the devices that report the one they announced first."""
        return {
            client: key
            for client, node in self._hosts.items()
            if (key := self._keys.get(node))
            and self._first_keys is not None
            and self._first_keys.is_first(client, key)
        }

    def discover(self, earlier: Callable[[], Iterable[Json]] = list) -> None:
        """Ask new nodes for their identity; at the start, wait until there are enough.

        Devices with ``earlier`` tests are missed by name until they are there.
        A device that left is forgotten, and asked again when it is back: it may have
        come back as another client, or moved to another node. Raises `WorkerLostError`
        if no node appears, or a worker of a simulation runs other code.
        """
        started = bool(self._nodes)
        if not (self.simulated or started):
            self._missing = {row["client"]: self._begun for row in earlier()}
        begun = time.monotonic()
        expected = 1
        while True:
            online = set(self.grid.get_node_ids())
            self._forget({*self._nodes, *self._refused, *self._asked}, online)
            fresh = online.difference(self._nodes, self._refused, self._asked)
            self._ask_identity(sorted(fresh))
            expected = max(expected, self._take_identities(fresh))
            if started:
                if self._missing:
                    self._say_who_is_here("going on without", SAY_EVERY)
                return
            if len(self._nodes) >= expected:
                self._say_who_is_here("going on without")
                return
            self._say_who_is_here("waiting for", SAY_EVERY)
            if time.monotonic() - begun > self._longest_wait():
                if self._nodes:
                    self._say_who_is_here("going on without")
                    return
                raise WorkerLostError(self._why_nobody())
            time.sleep(0.05)

    def _say_who_is_here(self, doing: str, every: float = 0.0) -> None:
        """Say how many devices there are, and what one does about others, at times."""
        if self.simulated or time.monotonic() - self._said < every:
            return
        self._said = time.monotonic()
        here = len(self._hosts)
        said = f"{here} of {self._expected} devices here"
        said += f" ({some_of(map(self.label, self.clients))})" if here else ""
        absent = [f"{self.label(c)} since {at(t)}" for c, t in self._missing.items()]
        absent += [f"an answer of {self._name(node)}" for node in sorted(self._asked)]
        more = self._expected - here - len(absent)
        absent += [f"{more} more since {at(self._begun)}"] if more > 0 else []
        if absent:
            said += f", {doing} {some_of(absent)}"
        log.warning("%s", said)

    def label(self, client: ClientId) -> str:
        """Return a client's id, and its device's name if that is another."""
        name = self.names.get(client, str(client))
        return f"{client} ({name})" if name != str(client) else name

    def _longest_wait(self) -> float:
        """Return for how long the start may wait, as things stand."""
        if self._nodes:
            return JOIN_TIMEOUT
        if self._asked:
            return max(self._patience, JOIN_TIMEOUT)
        return min(REFUSED_TIMEOUT, JOIN_TIMEOUT) if self._refused else JOIN_TIMEOUT

    def _why_nobody(self) -> str:
        if self._asked:
            return f"no node answered within {self._patience:g} s; look at the devices"
        for reason in self._refused.values():
            return reason
        return (
            f"no node joined within {JOIN_TIMEOUT:g} s; start SuperNodes, or "
            'add --federation-config "num-supernodes=2"'
        )

    def _forget(self, known: set[int], online: set[int]) -> None:
        """Forget the devices that left."""
        gone = set() if self.simulated else known - online
        self._nodes = [node for node in self._nodes if node not in gone]
        self._keys = {n: key for n, key in self._keys.items() if n not in gone}
        for node in gone:
            self._refused.pop(node, None)
            self._asked.pop(node, None)
        for node in gone & self._claims.keys():
            client = self._claims.pop(node)
            self._missing[client] = time.time()
            log.warning("client %s has left with node %s", self.label(client), node)
        if gone:
            self._settle()

    def _ask_identity(self, fresh: Collection[int]) -> None:
        """Ask new nodes for their identity, and silent ones again."""
        now = time.monotonic()
        run = self._first_keys.run if self._first_keys is not None else ""
        content = ask_identity(run)
        # One that is silent may have been restarted with the question.
        late = now - IDENTIFY_TIMEOUT
        nodes = [*fresh, *(node for node, asked in self._asked.items() if asked < late)]
        self._asked |= dict.fromkeys(nodes, now)
        messages = [Message(content, node, "query.identify") for node in nodes]
        if messages:
            ids = self.grid.push_messages(messages)
            self._queries |= {k: n for k, n in zip(ids, nodes, strict=True) if k}

    def _take_identities(self, fresh: Collection[int]) -> int:
        """Read nodes' identities, wait for new ones once; return the nodes expected."""
        start = time.monotonic()
        expected = 0
        waiting = set(fresh)
        if waiting:
            self.grid.finish()
        while True:
            replies = self.grid.pull_messages(self._queries) if self._queries else []
            if listed := list(replies):
                expected = max(expected, self._register(listed))
            waiting &= self._asked.keys()
            if not self._nodes:
                self._say_who_is_here("waiting for", SAY_EVERY)
            elapsed = time.monotonic() - start
            if not waiting or elapsed > IDENTIFY_TIMEOUT:
                break
            self.grid.pause(elapsed)
        for node in waiting:
            late = f"no answer within {IDENTIFY_TIMEOUT:g} s: busy, or hanging"
            log.warning("%s is not waited for: %s", self._name(node), late)
        return expected

    def _register(self, replies: Iterable[Message]) -> int:
        """Register nodes by their identities; return how many there should be."""
        identities: dict[int, Identity] = {}
        refusals: dict[int, str] = {}
        for reply in replies:
            # For a node that left, the SuperLink replies in its own name.
            node = self._queries.pop(reply.metadata.reply_to_message_id, None)
            if node is None or self._asked.pop(node, None) is None:
                continue  # It answers once more.
            if reply.has_error() and reply.error.code == NODE_UNAVAILABLE:
                continue  # It will be asked when it is back, maybe by the next look.
            try:
                identities[node] = read_identity(reply)
            except InvalidResultError as error:
                if self.simulated and error.reason == OTHER_CODE:
                    raise WorkerLostError(OTHER_WORKER) from error
                refusals[node] = error.detail
        known = identities.items()
        devices = {node: each.client for node, each in known if each.client is not None}
        self._keys |= {node: each.key for node, each in known}
        if not self.simulated:
            for node in identities.keys() - devices.keys():
                refusals[node] = "it has no client-id in its node config"
        # They are left out until they are back.
        for node, reason in refusals.items():
            log.warning("%s is left out: %s", self._name(node), reason)
        self._refused |= refusals
        if self.simulated:
            self._nodes += identities
            return max((each.nodes for each in identities.values()), default=0)
        self._nodes += devices
        self._claims |= devices
        self._take_names(devices)
        self._take_keys(identities.values())
        self._settle()
        return self._expected

    def _take_names(self, devices: Mapping[int, ClientId]) -> None:
        """Note that devices are there, and with which names they were registered."""
        registered = {info.node_id: info.name for info in self.grid.get_nodes()}
        for node, client in devices.items():
            self._missing.pop(client, None)
            if name := registered.get(node):
                self.names[client] = printable(name)

    def _take_keys(self, identities: Iterable[Identity]) -> None:
        """Take each client's first key for its own, unless another client has it."""
        for client, _, key in identities:
            if client is None or not key or self._first_keys is None:
                continue
            if whose := self._first_keys.take(client, key):
                told = "client %s is in no sum: it reports a key that is %s"
                log.warning(told, self.label(client), whose)

    def _settle(self) -> None:
        """Assign each client to the one node that claims it, or to none."""
        claimants: dict[ClientId, list[int]] = defaultdict(list)
        for node, client in self._claims.items():
            claimants[client].append(node)
        hosts = {c: nodes[0] for c, nodes in claimants.items() if len(nodes) == 1}
        for client in hosts.keys() & self._hosts.keys():
            if hosts[client] != self._hosts[client]:
                now = self._name(hosts[client])
                log.warning("client %s has moved to %s", client, now)
        disputes = {
            client: "claimed by " + " and by ".join(map(self._name, sorted(nodes)))
            for client, nodes in claimants.items()
            if len(nodes) > 1
        }
        for client in disputes.keys() - self.disputes.keys():
            log.warning("client %s is %s; both refused", client, disputes[client])
        self._hosts = hosts
        self.disputes = disputes

    def _name(self, node: int) -> str:
        """Return a node's id, and the name that it was registered with, if any."""
        for info in self.grid.get_nodes():
            if info.node_id == node and info.name:
                return f"node {node} ({printable(info.name)})"
        return f"node {node}"

    def recheck_identity(self, client: ClientId) -> None:
        """Forget who the node of a client is, so that it is asked again."""
        if client in self._hosts:
            self._forget({self._hosts[client]}, set())


def some_of(names: Iterable[str]) -> str:
    """Return the first of some names, and whether there are more.

    Examples
    --------
    >>> some_of("abcdef")
    'a, b, c, d, e, …'
    """
    found = [*names]
    more = ["…"] if len(found) > MOST_NAMES else []
    return ", ".join(found[:MOST_NAMES] + more)


def at(seconds: float) -> str:
    """Return the day and time of a moment by this machine's clock."""
    return f"{datetime.fromtimestamp(seconds):%a %H:%M}"
