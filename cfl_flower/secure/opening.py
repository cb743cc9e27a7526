"""The opening of a round's sums: senders sign who they are, then reveal the masks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cfl_flower.communication.identity import KEY_BYTES
from cfl_flower.communication.partial_sums import versions
from cfl_flower.communication.results import Results
from cfl_flower.secure.groups import (
    GROUPS,
    REVEAL,
    SIGNED,
    Groups,
    Revealed,
    RevealRequest,
    from_text,
    to_text,
)
from cfl_flower.secure.masks import unmask
from cfl_flower.types import ClientId, Plan, Result, Task, Version


@dataclass(eq=False)
class Opening:
    """The opening of a round's sums, for which every sender is asked twice."""

    plan: Plan
    results: Results
    groups: Mapping[Version, Sequence[ClientId]]
    senders: set[ClientId]

    def __post_init__(self) -> None:
        plan = self.plan
        assert plan.sum_spec is not None
        self._tasks = {t.client: t for t in plan.tasks if t.client in self.senders}
        self._versions = {c: versions(t, plan.sum_spec) for c, t in self._tasks.items()}
        self._sent = {
            version: [p for p, client in enumerate(members) if client in self.senders]
            for version, members in self.groups.items()
            if plan.reply[version[0]]
        }
        self.unreadable: set[ClientId] = set()
        """Clients whose encrypted shares none of the others could decrypt."""
        self.garbled: set[ClientId] = set()
        """Clients whose signature or revealed share makes no sense."""

    def open(self, ask: Callable[[Plan], Results]) -> None:
        """Remove the masks from the sums of groups; discard what too few reveal."""
        self._ask = ask
        # An array of no numbers has no sum.
        senders = {
            client: [self._sent.get(version, []) for version in found]
            for client, found in self._versions.items()
        }
        answers = self._answers({c: RevealRequest(s) for c, s in senders.items()})
        signed: dict[ClientId, list[bytes]] = {}
        for client, told in answers.items():
            groups = from_text(Groups, self._tasks[client].config[GROUPS])
            own = [self._place(client, version) for version in self._versions[client]]
            signatures = valid_signatures(told, groups, senders[client], own)
            if signatures is None:
                self.garbled.add(client)
            else:
                signed[client] = signatures
        found = self._answers(
            {c: self._complete(c, senders[c], signed) for c in signed}
        )
        results = self.results
        for version, places in self._sent.items():
            members = self.groups[version]
            revealed: dict[int, Revealed | None] = {}
            for place in places:
                answer = found.get(members[place])
                revealed[place] = read_group(answer, version[0], members, places)
                if answer is not None and revealed[place] is None:
                    self.garbled.add(members[place])
            self.unreadable.update(members[p] for p in unreadable(revealed))
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
            Task(c, (), {REVEAL: to_text(each), GROUPS: self._tasks[c].config[GROUPS]})
            for c, each in requests.items()
        ]
        return {answer.client: answer for answer in self._ask(Plan(tasks))}

    def _complete(
        self,
        client: ClientId,
        senders: Sequence[Sequence[int]],
        signed: Mapping[ClientId, Sequence[bytes]],
    ) -> RevealRequest:
        """Return a request with what the senders signed, and encrypted for a client."""
        sealed = []
        signatures = []
        for version, places in zip(self._versions[client], senders, strict=True):
            array = version[0]
            own = self._place(client, version)
            names = [self.groups[version][place] for place in places]
            sealed.append([self.results.shares[each][array][own] for each in names])
            signatures.append(
                [signed[each][array] if each in signed else b"" for each in names]
            )
        return RevealRequest(senders, sealed, signatures)

    def _place(self, client: ClientId, version: Version) -> int:
        return self.groups[version].index(client) if version in self._sent else 0


def valid_signatures(
    answer: Result, groups: Groups, senders: Sequence[Sequence[int]], own: Sequence[int]
) -> list[bytes] | None:
    """Return a sender's signature for each array; None if one is missing or wrong.

    ``own`` are its places in the groups.
    """
    try:
        signed = from_text(list[bytes], answer.metrics[SIGNED])
        valid = [
            groups.is_signed(array, places, own[array], signed[array])
            for array, places in enumerate(senders)
            if places
        ]
    except (KeyError, IndexError, ValueError):
        return None
    return signed if all(valid) else None


def read_group(
    answer: Result | None, array: int, members: Sequence[ClientId], sent: Sequence[int]
) -> Revealed | None:
    """Return what a device revealed of a group; None if it did not, or not all."""
    try:
        text = answer.metrics.get(REVEAL) if answer is not None else None
        revealed = from_text(list[Revealed], text)[array]
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
