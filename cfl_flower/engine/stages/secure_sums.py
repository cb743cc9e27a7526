"""What `privacy.secure_sums` adds to a synchronous method's rounds, whichever it is.

The participants of a round who train the same model are a group. Devices hide their
results behind masks (`communication.masks`), and the server finds the sum of each group
alone: of those whose results are there, if fewer than a third are lost and at least
`least_members` are left. A simulation has the same sums without masks, and so the same
numbers.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from cfl_flower.client.device_sums import (
    REVEAL,
    SALT_BYTES,
    RevealRequest,
    read_revealed,
)
from cfl_flower.communication.masks import (
    GROUPS,
    KEY_BYTES,
    Groups,
    Revealed,
    fewest_senders,
    unmask,
)
from cfl_flower.communication.partial_sums import groups_of, versions
from cfl_flower.communication.results import Results
from cfl_flower.engine.context import RoundContext
from cfl_flower.engine.delivery import Delivery
from cfl_flower.engine.stages.privacy_budget import bases_of
from cfl_flower.engine.stages.stage import Stage
from cfl_flower.types import (
    ClientId,
    Failure,
    Plan,
    Result,
    Scalar,
    SumSpec,
    Task,
    Version,
    client_order,
)

if TYPE_CHECKING:
    from cfl_flower.config.compose import RunConfig

log = logging.getLogger(__name__)

NO_KEY = "its device is not there, or reports another key than its first, or another's"
"""Why a participant cannot be in a group of real devices."""

INCOMPLETE = "incomplete"
"""Why a valid result is lost: its group's sum was not opened."""

UNREADABLE = "it encrypted shares that no other device of its group can read"

GARBLED = "what it revealed cannot be read, or is not all that was asked for"

LOST_GROUP = "too many of its group gave no result, or masks did not cancel"


def with_keys(
    tasks: Sequence[Task], spec: SumSpec, keys: Mapping[ClientId, bytes]
) -> list[Task]:
    """Return tasks that name to each device the masks in the sums of its arrays.

    ``tasks`` are in the order of keys.
    """
    salt = os.urandom(SALT_BYTES)
    known = {
        version: [keys[client] for client in members]
        for version, members in groups_of(tasks, spec).items()
    }
    found = []
    requests: dict[tuple[Version, ...], dict[str, Scalar]] = {}
    for task in tasks:
        which = tuple(versions(task, spec))
        if which not in requests:
            requests[which] = Groups(salt, [known[each] for each in which]).to_config()
        found.append(replace(task, config=task.config | requests[which]))
    return found


def read_group(
    answer: Result | None, array: int, members: Sequence[ClientId], sent: Sequence[int]
) -> Revealed | None:
    """Return what a device revealed of a group; None if it did not, or not all."""
    try:
        text = answer.metrics.get(REVEAL) if answer is not None else None
        revealed = read_revealed(text)[array]
    except (ValueError, IndexError):
        return None  # Its shares are missing, as those of one that is lost.
    lost = len(members) - len(sent)
    if [len(revealed.shares), len(revealed.seeds)] != [len(sent), lost]:
        return None
    complete = all(len(seed) == KEY_BYTES for seed in revealed.seeds)
    return revealed if complete else None


def unreadable(revealed: Mapping[int, Revealed | None]) -> list[int]:
    """Return the senders whose shares none of the others could read."""
    found = []
    for number, sender in enumerate(sorted(revealed)):
        readers = [r for place, r in revealed.items() if place != sender and r]
        if readers and not any(reader.shares[number] for reader in readers):
            found.append(sender)
    return found


class Liars(NamedTuple):
    """Clients whose messages to others cannot be read."""

    unreadable: set[ClientId]
    """Who encrypted shares that none of the others could decrypt."""
    garbled: set[ClientId]
    """Who revealed something that makes no sense."""


def senders_of(
    there: set[ClientId],
    needed: Mapping[ClientId, Sequence[Version]],
    lost: set[Version],
) -> set[ClientId]:
    """Return those of some clients of whose sums none is lost."""
    return {client for client in there if lost.isdisjoint(needed[client])}


def request_of(
    task: Task,
    spec: SumSpec,
    groups: Mapping[Version, Sequence[ClientId]],
    sent: Mapping[Version, Sequence[int]],
    results: Results,
) -> Task:
    """Return the task that asks a sender for what opens its sums."""
    senders = []
    sealed = []
    for version in versions(task, spec):
        # An array of no numbers has no sum.
        places = sent.get(version, [])
        members = groups[version]
        own = members.index(task.client)
        senders.append(places)
        sealed.append([results.shares[members[p]][version[0]][own] for p in places])
    request = RevealRequest(senders, sealed).to_config()
    return Task(task.client, (), request | {GROUPS: task.config[GROUPS]})


class SecureSums(Stage):
    """Forms the groups of a round, and opens their sums."""

    def __init__(self, config: RunConfig, delivery: Delivery) -> None:
        settings: Any = config.strategy
        self._least = config.privacy.least_members
        self._by_samples = settings.weighting == "samples"
        self._delivery = delivery

    def plan(self, context: RoundContext, plan: Plan) -> Plan:
        """Return a plan whose results are added up, without groups that are too small.

        Real devices receive the public keys of their groups.
        """
        if context.phase != "train" or not any(plan.reply):
            return plan
        spec = plan.sum_spec or SumSpec(bases_of(plan), self._by_samples)
        spec = replace(spec, masked=True)
        asked = plan.tasks
        record = context.record
        keys = None if context.fleet.simulated else context.fleet.keys
        if keys is not None:
            asked = [task for task in plan.tasks if task.client in keys]
            absent = [task.client for task in plan.tasks if task.client not in keys]
            record.failures += [Failure(c, "train", "node", NO_KEY) for c in absent]
            # Groups are in the order of keys, in which devices have their places.
            asked.sort(key=lambda task: keys[task.client])
        tasks = self._large_enough(asked, spec)
        record.measures["left_out"] = len(asked) - len(tasks)
        if not tasks:
            log.warning(
                "round %s: no sum of %s participants", context.number, self._least
            )
        if keys is not None:
            tasks = with_keys(tasks, spec, keys)
        return replace(plan, tasks=tasks, sum_spec=spec)

    def receive(self, context: RoundContext, plan: Plan, results: Results) -> Results:
        """Leave the sums that could be opened, and the results that are in them."""
        spec = context.sent.sum_spec
        if context.phase != "train" or spec is None:
            return results
        ask = None
        if not context.fleet.simulated:
            # The same clients again, in the same round: no plan of a method's.
            ask = partial(self._delivery.query, context.number)
        kept, failures = self.open_sums(context.sent, results, ask)
        context.record.failures += failures
        return kept

    def _large_enough(self, tasks: list[Task], spec: SumSpec) -> list[Task]:
        """Return the tasks whose groups all have enough members."""
        while True:
            groups = groups_of(tasks, spec)
            left = [
                task
                for task in tasks
                if all(len(groups[v]) >= self._least for v in versions(task, spec))
            ]
            if len(left) == len(tasks):
                return tasks
            # Who is left out of one group is missing in its others.
            tasks = left

    def open_sums(
        self, plan: Plan, results: Results, ask: Callable[[Plan], Results] | None
    ) -> tuple[Results, list[Failure]]:
        """Keep the sums of groups of which enough are left, without their masks.

        Returns the results that are in these, and the failures of those whose groups
        are lost, and of those whose messages to others cannot be read. ``ask`` asks
        devices for what opens sums; it is None in a simulation, which has no masks. A
        sum whose masks did not cancel is not one of models, and is discarded.
        """
        spec = plan.sum_spec
        assert spec is not None
        groups = groups_of(plan.tasks, spec)
        needed = {
            task.client: [v for v in versions(task, spec) if plan.reply[v[0]]]
            for task in plan.tasks
        }
        there = {result.client for result in results}
        # In the sums, but refused since: what is in these is not to be believed.
        doubtful = results.shares.keys() - there
        lost = {version for client in doubtful for version in needed[client]}
        lost = self._all_lost(groups, needed, there, lost)
        kept = senders_of(there, needed, lost)
        liars = Liars(set(), set())
        if ask is not None and kept:
            request = {v: members for v, members in groups.items() if v not in lost}
            liars = self._unmask(plan, results, request, kept, ask)
        lost |= {v for v, total in results.sums.items() if not total.is_possible()}
        lost |= {v for each in needed.values() for v in each} - results.sums.keys()
        lost = self._all_lost(groups, needed, kept, lost)
        kept = senders_of(kept, needed, lost)
        failures = [
            Failure(client, "query", "shape", GARBLED)
            for client in sorted(liars.garbled, key=client_order)
        ]
        for result in results:
            if result.client in liars.unreadable:
                failures.append(Failure(result.client, "train", "shape", UNREADABLE))
            elif result.client not in kept:
                failures.append(Failure(result.client, "train", INCOMPLETE, LOST_GROUP))
        for version in lost & results.sums.keys():
            del results.sums[version]
        left = [result for result in results if result.client in kept]
        return results.with_results(left), failures

    def _all_lost(
        self,
        groups: Mapping[Version, Sequence[ClientId]],
        needed: Mapping[ClientId, Sequence[Version]],
        there: set[ClientId],
        lost: set[Version],
    ) -> set[Version]:
        """Return which sums cannot be opened, given who is there and some that cannot.

        Too few members of a group may be left, as who is in a lost sum is in none.
        """
        found = set(lost)
        while True:
            left = senders_of(there, needed, found)
            more = {
                version
                for version, members in groups.items()
                if len(left.intersection(members))
                < fewest_senders(len(members), self._least)
            }
            # Results of those that drop out are in their other sums, and cannot leave.
            for client in there - left:
                more.update(needed[client])
            if more <= found:
                return found
            found |= more

    def _unmask(
        self,
        plan: Plan,
        results: Results,
        groups: Mapping[Version, Sequence[ClientId]],
        senders: set[ClientId],
        ask: Callable[[Plan], Results],
    ) -> Liars:
        """Remove the masks from the sums of groups; discard what too few reveal.

        Every sender is asked once: for its shares of the senders' own seeds, and for
        the seeds of its masks with those of its groups whose results are lost. Return
        the clients of whom something could not be read.
        """
        sent = {
            version: [p for p, client in enumerate(members) if client in senders]
            for version, members in groups.items()
            if plan.reply[version[0]]
        }
        spec = plan.sum_spec
        assert spec is not None
        tasks = [
            request_of(task, spec, groups, sent, results)
            for task in plan.tasks
            if task.client in senders
        ]
        found = {answer.client: answer for answer in ask(Plan(tasks))}
        liars = Liars(set(), set())
        for version, places in sent.items():
            members = groups[version]
            revealed: dict[int, Revealed | None] = {}
            for place in places:
                answer = found.get(members[place])
                revealed[place] = read_group(answer, version[0], members, places)
                if answer is not None and revealed[place] is None:
                    liars.garbled.add(members[place])
            liars.unreadable.update(members[p] for p in unreadable(revealed))
            total = unmask(results.sums[version], len(members), revealed)
            if total is None:
                del results.sums[version]
            else:
                results.sums[version] = total
        return liars
