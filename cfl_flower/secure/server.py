"""The server's side of secure sums: who is in which group, and which sums are opened.

Devices hide their results behind masks (`secure.masks`), and the server finds the sum
of each group alone: of those whose results are there, if fewer than a third are lost
and at least ``least`` are left. A simulation has the same sums without masks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from cfl_flower.communication.partial_sums import groups_of, versions
from cfl_flower.communication.results import Results
from cfl_flower.secure.groups import GROUPS, Groups, fewest_senders, to_text
from cfl_flower.secure.memory import SALT_BYTES
from cfl_flower.secure.opening import Opening
from cfl_flower.types import (
    ClientId,
    Failure,
    Plan,
    Scalar,
    SumSpec,
    Task,
    Version,
    client_order,
)

INCOMPLETE = "incomplete"
"""Why a valid result is lost: its group's sum was not opened."""

UNREADABLE = "it encrypted shares that no other device of its group can read"

GARBLED = "what it signed or revealed is wrong, or not all that was asked for"

LOST_GROUP = "too many of its group gave no result, or masks did not cancel"


def large_enough(tasks: Sequence[Task], spec: SumSpec, least: int) -> list[Task]:
    """Return the tasks whose groups all have at least so many members."""
    left = list(tasks)
    while True:
        groups = groups_of(left, spec)
        kept = [
            task
            for task in left
            if all(len(groups[v]) >= least for v in versions(task, spec))
        ]
        if len(kept) == len(left):
            return kept
        # A client that is left out of one group is missing in its others.
        left = kept


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
            groups = Groups(salt, [known[each] for each in which])
            requests[which] = {GROUPS: to_text(groups)}
        found.append(replace(task, config=task.config | requests[which]))
    return found


def who_is_left(
    groups: Mapping[Version, Sequence[ClientId]],
    needed: Mapping[ClientId, Sequence[Version]],
    there: set[ClientId],
    lost: set[Version],
    least: int,
) -> tuple[set[ClientId], set[Version]]:
    """Return whose results can be opened, and which sums cannot, given who is there.

    Too few members of a group may be left, as who is in a lost sum is in none.
    """
    found = set(lost)
    while True:
        left = {client for client in there if found.isdisjoint(needed[client])}
        more = {
            version
            for version, members in groups.items()
            if len(left.intersection(members)) < fewest_senders(len(members), least)
        }
        # Results of those that drop out are in their other sums, and cannot leave.
        for client in there - left:
            more.update(needed[client])
        if more <= found:
            return left, found
        found |= more


def open_sums(
    plan: Plan, results: Results, least: int, ask: Callable[[Plan], Results] | None
) -> tuple[Results, list[Failure], set[Version]]:
    """Keep the sums of groups of which enough are left, without their masks.

    ``ask`` asks devices for signatures and for what opens sums; it is None in a
    simulation, which has no masks. A sum whose masks did not cancel is not one of
    models, and is discarded.

    Returns
    -------
    tuple
        The results that are in the sums that are left; the failures of those whose
        groups are lost, and of those whose messages to others cannot be read; and the
        sums that are lost.
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
    kept, lost = who_is_left(groups, needed, there, lost, least)
    request = {v: members for v, members in groups.items() if v not in lost}
    opening = Opening(plan, results, request, kept)
    if ask is not None and kept:
        opening.open(ask)
    lost |= {v for v, total in results.sums.items() if not total.is_possible()}
    lost |= {v for each in needed.values() for v in each} - results.sums.keys()
    kept, lost = who_is_left(groups, needed, kept, lost, least)
    failures = failures_of(results, kept, opening)
    for version in lost & results.sums.keys():
        del results.sums[version]
    left = [result for result in results if result.client in kept]
    return results.with_results(left), failures, lost


def failures_of(
    results: Results, kept: set[ClientId], opening: Opening
) -> list[Failure]:
    """Return why devices are in no sum, or have told others what makes no sense."""
    failures = [
        Failure(client, "query", "shape", GARBLED)
        for client in sorted(opening.garbled, key=client_order)
    ]
    for result in results:
        if result.client in opening.unreadable:
            failures.append(Failure(result.client, "train", "shape", UNREADABLE))
        elif result.client not in kept:
            failures.append(Failure(result.client, "train", INCOMPLETE, LOST_GROUP))
    return failures
