"""What `privacy.secure_sums` adds to a synchronous method's rounds, whichever it is.

The participants of a round who train the same model are a group. Devices hide their
results behind masks (`communication.masks`), and the server finds the sum of each group
alone. In the place of each one's model the method then finds the group's mean: whatever
it averages with its own weights is that mean again. A simulation has the same sums
without masks, and so the same numbers.
"""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cfl_flower.communication.masks import Groups
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


def with_keys(
    tasks: Sequence[Task],
    spec: SumSpec,
    groups: Mapping[Version, Sequence[ClientId]],
    keys: Mapping[ClientId, bytes],
) -> list[Task]:
    """Return tasks that tell each device whose masks are in the sums of its arrays."""
    salt, found = os.urandom(32), []
    known = {v: sorted(keys[c] for c in members) for v, members in groups.items()}
    told: dict[tuple[Version, ...], dict[str, Scalar]] = {}
    for task in tasks:
        which = tuple(versions(task, spec))
        if which not in told:
            told[which] = Groups(salt, [known[each] for each in which]).to_config()
        found.append(replace(task, config=task.config | told[which]))
    return found


class SecureSums:
    """Forms the groups of a round, and opens their sums."""

    def __init__(self, config: RunConfig) -> None:
        settings: Any = config.strategy
        self._least = config.privacy.least_members
        self._by_samples = settings.weighting == "samples"

    def plan(
        self, plan: Plan, record: RoundRecord, keys: Mapping[ClientId, bytes] | None
    ) -> Plan:
        """Return a plan whose results are added up, without groups that are too small.

        ``keys`` has the devices' public keys; None in a simulation.
        """
        spec = plan.sum_spec or SumSpec(bases_of(plan), self._by_samples)
        spec, asked = replace(spec, masked=True), plan.tasks
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
            tasks = with_keys(tasks, spec, groups, keys)
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

    def open(self, plan: Plan, results: Results) -> list[Failure]:
        """Keep the sums of whole groups; return the failures of all others' members.

        A sum whose masks did not cancel is not one of models, and is discarded.
        """
        spec, failures = plan.sum_spec, list[Failure]()
        assert spec is not None
        needed = {
            task.client: [v for v in versions(task, spec) if plan.reply[v[0]]]
            for task in plan.tasks
        }
        sound = {v for v, total in results.sums.items() if total.is_possible()}
        while True:
            there = {result.client for result in results}
            whole = sound.difference(*(v for c, v in needed.items() if c not in there))
            kept: list[Result] = []
            for result in results:
                if whole.issuperset(needed[result.client]):
                    kept.append(result)
                    continue
                detail = "another device of its group gave no result, or other masks"
                failures.append(Failure(result.client, "train", INCOMPLETE, detail))
            if len(kept) == len(results):
                break
            results[:] = kept
        for version in results.sums.keys() - whole:
            del results.sums[version]
        return failures

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
