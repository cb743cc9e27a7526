"""What `privacy.secure_sums` adds to a synchronous method's rounds, whichever it is.

The participants of a round who train the same model are a group. Devices hide their
results behind masks (`communication.masks`), and the server finds the sum of each group
alone: of those whose results are there, if no more than a third is lost and at least
`least_members` are left. In the place of each one's model the method then finds the
group's mean: whatever it averages with its own weights is that mean again. A simulation
has the same sums without masks, and so the same numbers.
"""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from cfl_flower.communication.device_sums import (
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
from cfl_flower.communication.partial_sums import NOTHING, Version, versions
from cfl_flower.communication.results import Results
from cfl_flower.runs.record import RoundRecord
from cfl_flower.settings import require
from cfl_flower.types import (
    ClientId,
    Failure,
    Plan,
    Result,
    Scalar,
    SumSpec,
    Task,
)
from strategies.privacy import Disclosure, bases_of

if TYPE_CHECKING:
    from cfl_flower.config.compose import RunConfig

log = logging.getLogger(__name__)

NO_KEY = "its device is not there, or tells another key than its first, or another's"
"""Why a participant cannot be in a group of real devices."""

INCOMPLETE = "incomplete"
"""Why a sound result is lost: its group's sum was not opened."""

UNREADABLE = "it encrypted shares that no other device of its group can read"

LOST_GROUP = "too many of its group gave no result, or masks did not cancel"


def check_secure_sums(config: RunConfig, sent: Disclosure | None) -> None:
    """Raise `ConfigError` for a method, or settings, that need single results."""
    names, least = config.names, config.privacy.least_members
    method = f"false with strategy={names['strategy']}"
    for ok, field, value, allowed in (
        (
            sent is not None and not sent.singly,
            "privacy.secure_sums",
            "true",
            f"{method}, whose server needs more than each cluster's sum",
        ),
        (
            not config.server_optimizer.by_loss,
            "server_optimizer",
            names["server_optimizer"],
            "another one with privacy.secure_sums, which hides single models",
        ),
        (
            not config.selection.learns,
            "selection",
            names["selection"],
            "random or nearest with privacy.secure_sums, which hides no losses",
        ),
        (
            config.devices.over_commitment == 1,
            "devices.over_commitment",
            config.devices.over_commitment,
            "1 with privacy.secure_sums, whose sums need everyone who was asked",
        ),
        (
            config.participants >= least,
            "privacy.least_members",
            least,
            f"at most participants={config.participants}",
        ),
    ):
        require(ok, field, value, allowed)
    config.strategy.check_secure_sums()


Asker: TypeAlias = Callable[[Plan], list[Result]]
"""Asks devices what a plan says, and returns their answers."""


def with_keys(
    tasks: Sequence[Task],
    spec: SumSpec,
    groups: Mapping[Version, Sequence[ClientId]],
    keys: Mapping[ClientId, bytes],
) -> list[Task]:
    """Return tasks that tell each device whose masks are in the sums of its arrays.

    ``groups`` are in the order of keys.
    """
    salt = os.urandom(SALT_BYTES)
    known = {v: [keys[client] for client in members] for v, members in groups.items()}
    found = []
    told: dict[tuple[Version, ...], dict[str, Scalar]] = {}
    for task in tasks:
        which = tuple(versions(task, spec))
        if which not in told:
            told[which] = Groups(salt, [known[each] for each in which]).to_config()
        found.append(replace(task, config=task.config | told[which]))
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
    sound = all(len(seed) == KEY_BYTES for seed in revealed.seeds)
    return revealed if sound else None


def unreadable(revealed: Mapping[int, Revealed | None]) -> list[int]:
    """Return the senders whose shares none of the others could read."""
    found = []
    for number, sender in enumerate(sorted(revealed)):
        readers = [r for place, r in revealed.items() if place != sender and r]
        if readers and not any(reader.shares[number] for reader in readers):
            found.append(sender)
    return found


class SecureSums:
    """Forms the groups of a round, and opens their sums."""

    def __init__(self, config: RunConfig) -> None:
        settings: Any = config.strategy
        self._least = config.privacy.least_members
        self._by_samples = settings.weighting == "samples"
        self._groups: dict[Version, list[ClientId]] = {}
        self._unreadable: set[ClientId] = set()

    def plan(
        self, plan: Plan, record: RoundRecord, keys: Mapping[ClientId, bytes] | None
    ) -> Plan:
        """Return a plan whose results are added up, without groups that are too small.

        ``keys`` has the devices' public keys; None in a simulation.
        """
        spec = plan.sum_spec or SumSpec(bases_of(plan), self._by_samples)
        spec = replace(spec, masked=True)
        asked = plan.tasks
        if keys is not None:
            asked = [task for task in plan.tasks if task.client in keys]
            absent = [task.client for task in plan.tasks if task.client not in keys]
            record.failures += [Failure(c, "train", "node", NO_KEY) for c in absent]
        tasks, groups = self._large_enough(asked, spec)
        record.measures["left_out"] = len(asked) - len(tasks)
        if not tasks:
            log.warning(
                "round %s: no sum of %s participants", record.round, self._least
            )
        if keys is not None:
            for members in groups.values():
                members.sort(key=lambda client: keys[client])
            tasks = with_keys(tasks, spec, groups, keys)
        self._groups = groups
        return replace(plan, tasks=tasks, sum_spec=spec)

    def _large_enough(
        self, tasks: list[Task], spec: SumSpec
    ) -> tuple[list[Task], dict[Version, list[ClientId]]]:
        """Return the tasks whose groups all have enough members, and the groups."""
        while True:
            groups: dict[Version, list[ClientId]] = defaultdict(list)
            for task in tasks:
                for version in versions(task, spec):
                    groups[version].append(task.client)
            left = [
                task
                for task in tasks
                if all(len(groups[v]) >= self._least for v in versions(task, spec))
            ]
            if len(left) == len(tasks):
                return tasks, groups
            # Who is left out of one group is missing in its others.
            tasks = left

    def open(self, plan: Plan, results: Results, ask: Asker | None) -> list[Failure]:
        """Keep the sums of groups of which enough are left, without their masks.

        Return the failures of those whose groups are lost. ``ask`` asks devices for
        what opens sums; it is None in a simulation, which has no masks. A sum whose
        masks did not cancel is not one of models, and is discarded.
        """
        spec = plan.sum_spec
        assert spec is not None
        needed = {
            task.client: [v for v in versions(task, spec) if plan.reply[v[0]]]
            for task in plan.tasks
        }
        there = [result.client for result in results]
        # In the sums, but refused since: what is in these is not to be believed.
        doubtful = results.shares.keys() - set(there)
        lost = {version for client in doubtful for version in needed[client]}
        kept = self._with_enough(there, needed, lost)
        self._unreadable = set()
        if ask is not None and kept:
            lost |= self._unmask(plan, results, kept, lost, ask)
        lost |= {v for v, total in results.sums.items() if not total.is_possible()}
        kept = self._with_enough(kept, needed, lost)
        failures = []
        for client in there:
            if client in self._unreadable:
                failures.append(Failure(client, "train", "shape", UNREADABLE))
            elif client not in kept:
                failures.append(Failure(client, "train", INCOMPLETE, LOST_GROUP))
        results[:] = [result for result in results if result.client in kept]
        for version in lost & results.sums.keys():
            del results.sums[version]
        return failures

    def _with_enough(
        self,
        there: Collection[ClientId],
        needed: Mapping[ClientId, Sequence[Version]],
        lost: set[Version],
    ) -> set[ClientId]:
        """Return whose groups can all be opened; add to ``lost`` which ones cannot."""
        kept = set(there)
        while True:
            for version, members in self._groups.items():
                enough = fewest_senders(len(members), self._least)
                if len(kept.intersection(members)) < enough:
                    lost.add(version)
            dropped = {client for client in kept if lost.intersection(needed[client])}
            if not dropped:
                return kept
            # Their results are in their other groups' sums, where they cannot stay.
            lost.update(*(needed[client] for client in dropped))
            kept -= dropped

    def _unmask(
        self,
        plan: Plan,
        results: Results,
        senders: set[ClientId],
        lost: set[Version],
        ask: Asker,
    ) -> set[Version]:
        """Remove the masks from the sums of senders; return those that still have them.

        Every sender is asked once: for its shares of the senders' own seeds, and for
        the seeds of its masks with those of its groups whose results are lost.
        """
        spec = plan.sum_spec
        assert spec is not None
        places: dict[Version, list[int]] = {}
        for version, members in self._groups.items():
            open_ = plan.reply[version[0]] and version not in lost
            sent = [p for p, client in enumerate(members) if client in senders]
            places[version] = sent if open_ else []
        tasks = []
        for task in plan.tasks:
            if task.client in senders:
                request = self._request(task, spec, places, results)
                groups = {GROUPS: task.config[GROUPS]}
                tasks.append(Task(task.client, (), groups | request.to_config()))
        told = {answer.client: answer for answer in ask(Plan(tasks))}
        failed = set[Version]()
        for version, sent in places.items():
            if not sent:
                continue
            members = self._groups[version]
            revealed = {
                place: read_group(told.get(members[place]), version[0], members, sent)
                for place in sent
            }
            forged = unreadable(revealed)
            self._unreadable.update(members[place] for place in forged)
            total = unmask(results.sums[version], len(members), revealed)
            if total is None:
                failed.add(version)
            else:
                results.sums[version] = total
        return failed

    def _request(
        self,
        task: Task,
        spec: SumSpec,
        places: Mapping[Version, Sequence[int]],
        results: Results,
    ) -> RevealRequest:
        """Return what a sender is asked for."""
        senders, sealed = [], []
        for version in versions(task, spec):
            members = self._groups[version]
            own = members.index(task.client)
            sent = places[version]
            senders.append(sent)
            sealed.append([results.shares[members[p]][version[0]][own] for p in sent])
        return RevealRequest(senders, sealed)

    def replace_by_means(self, plan: Plan, results: Results) -> None:
        """Put each group's mean in the place of its members' models."""
        spec = plan.sum_spec
        assert spec is not None
        tasks = {task.client: task for task in plan.tasks}
        means = {version: total.mean() for version, total in results.sums.items()}
        for place, result in enumerate(results):
            found = versions(tasks[result.client], spec)
            # A method with nothing to share sends an array of no numbers.
            arrays = [means.get(version, NOTHING) for version in found]
            results[place] = replace(result, arrays=arrays)
