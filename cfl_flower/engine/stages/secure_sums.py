"""What `privacy.secure_sums` adds to a synchronous method's rounds, whichever it is.

The participants of a round who train the same model are a group. Devices hide their
results behind masks (`communication.masks`), and the server finds the sum of each group
alone: of those whose results are there, if fewer than a third are lost and at least
`least_members` are left. They first sign who they are, then reveal what opens the sum.
A simulation has the same sums without masks, and so the same numbers.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from cfl_flower.client.device_sums import (
    REVEAL,
    SALT_BYTES,
    SIGNED,
    RevealRequest,
    read_revealed,
)
from cfl_flower.clustering.representations import digest
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
from cfl_flower.run_config import RunConfig
from cfl_flower.types import (
    ClientId,
    Failure,
    Plan,
    Result,
    Scalar,
    SumSpec,
    Task,
    Vector,
    Version,
    client_order,
)

log = logging.getLogger(__name__)

NO_KEY = "its device is not there, or reports another key than its first, or another's"
"""Why a participant cannot be in a group of real devices."""

INCOMPLETE = "incomplete"
"""Why a valid result is lost: its group's sum was not opened."""

UNREADABLE = "it encrypted shares that no other device of its group can read"

GARBLED = "what it signed or revealed is wrong, or not all that was asked for"

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


def read_signatures(
    answer: Result, groups: Groups, senders: Sequence[Sequence[int]], own: Sequence[int]
) -> list[bytes] | None:
    """Return a sender's signature for each array; None if one is missing or wrong.

    ``own`` are its places in the groups.
    """
    try:
        signed = [bytes.fromhex(s) for s in json.loads(str(answer.metrics[SIGNED]))]
        valid = [
            groups.is_signed(array, places, own[array], signed[array])
            for array, places in enumerate(senders)
            if places
        ]
    except (KeyError, IndexError, TypeError, ValueError, RecursionError):
        return None
    return signed if all(valid) else None


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
    """Who signed or revealed something that makes no sense."""


def senders_of(
    there: set[ClientId],
    needed: Mapping[ClientId, Sequence[Version]],
    lost: set[Version],
) -> set[ClientId]:
    """Return those of some clients of whose sums none is lost."""
    return {client for client in there if lost.isdisjoint(needed[client])}


class Opening:
    """The opening of a round's sums, for which every sender is asked twice."""

    def __init__(
        self,
        plan: Plan,
        results: Results,
        groups: Mapping[Version, Sequence[ClientId]],
        senders: set[ClientId],
        ask: Callable[[Plan], Results],
    ) -> None:
        assert plan.sum_spec is not None
        self._results = results
        self._groups = groups
        self._ask = ask
        self._tasks = {t.client: t for t in plan.tasks if t.client in senders}
        self._versions = {c: versions(t, plan.sum_spec) for c, t in self._tasks.items()}
        self._sent = {
            version: [p for p, client in enumerate(members) if client in senders]
            for version, members in groups.items()
            if plan.reply[version[0]]
        }
        self.liars = Liars(set(), set())

    def open(self) -> None:
        """Remove the masks from the sums of groups; discard what too few reveal."""
        # An array of no numbers has no sum.
        asked = {
            client: RevealRequest([self._sent.get(each, []) for each in found])
            for client, found in self._versions.items()
        }
        signed = self._read_signatures(asked, self._answers(asked))
        found = self._answers(
            {client: self._complete(client, asked[client], signed) for client in signed}
        )
        results = self._results
        for version, places in self._sent.items():
            members = self._groups[version]
            revealed: dict[int, Revealed | None] = {}
            for place in places:
                answer = found.get(members[place])
                revealed[place] = read_group(answer, version[0], members, places)
                if answer is not None and revealed[place] is None:
                    self.liars.garbled.add(members[place])
            self.liars.unreadable.update(members[p] for p in unreadable(revealed))
            total = unmask(results.sums[version], len(members), revealed)
            if total is None:
                del results.sums[version]
            else:
                results.sums[version] = total

    def _answers(
        self, requests: Mapping[ClientId, RevealRequest]
    ) -> dict[ClientId, Result]:
        """Return what senders answer to requests."""
        tasks = [
            Task(c, (), each.to_config() | {GROUPS: self._tasks[c].config[GROUPS]})
            for c, each in requests.items()
        ]
        return {answer.client: answer for answer in self._ask(Plan(tasks))}

    def _read_signatures(
        self,
        asked: Mapping[ClientId, RevealRequest],
        answers: Mapping[ClientId, Result],
    ) -> dict[ClientId, list[bytes]]:
        """Return the senders' signatures, for each array, where all are valid."""
        signed = {}
        for client, answer in answers.items():
            groups = Groups.of_config(self._tasks[client].config)
            own = [self._place(client, version) for version in self._versions[client]]
            found = read_signatures(answer, groups, asked[client].senders, own)
            if found is None:
                self.liars.garbled.add(client)
            else:
                signed[client] = found
        return signed

    def _complete(
        self,
        client: ClientId,
        request: RevealRequest,
        signed: Mapping[ClientId, Sequence[bytes]],
    ) -> RevealRequest:
        """Return a request with what the senders signed, and encrypted for a client."""
        sealed = []
        signatures = []
        for version, places in zip(
            self._versions[client], request.senders, strict=True
        ):
            array = version[0]
            own = self._place(client, version)
            senders = [self._groups[version][place] for place in places]
            sealed.append([self._results.shares[each][array][own] for each in senders])
            signatures.append(
                [signed[each][array] if each in signed else b"" for each in senders]
            )
        return RevealRequest(request.senders, sealed, signatures)

    def _place(self, client: ClientId, version: Version) -> int:
        return self._groups[version].index(client) if version in self._sent else 0


class SecureSums(Stage):
    """Forms the groups of a round, and opens their sums."""

    def __init__(self, config: RunConfig, delivery: Delivery) -> None:
        settings: Any = config.strategy
        self._least = config.privacy.least_members
        self._by_samples = settings.weighting == "samples"
        self._delivery = delivery
        self._lost: set[str] = set()
        """The digests of models of which devices' sums were lost."""

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
        models = [self._other(model) for model in plan.models]
        return replace(plan, tasks=tasks, models=models, sum_spec=spec)

    def _other(self, model: Vector) -> Vector:
        """Return a model; one whose sum was lost as another one, by its last bits.

        Its devices have signed who was to be in that sum, and never sign others for the
        same model: its cluster could not go on without one of them.
        """
        while self._lost and digest(model) in self._lost:
            model = np.nextafter(model, np.float32(np.inf))
        return model

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
        devices for signatures and for what opens sums; it is None in a simulation,
        which has no masks. A sum whose masks did not cancel is not one of models, and
        is discarded.
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
            opening = Opening(plan, results, request, kept, ask)
            opening.open()
            liars = opening.liars
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
        if ask is not None:
            self._lost |= {digest(plan.models[v[1]]) for v in lost if plan.reply[v[0]]}
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
