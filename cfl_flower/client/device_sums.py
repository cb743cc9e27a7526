"""A device's side of secure sums: what it refuses, hides and reveals.

The server's side is `cfl_flower.engine.secure_sums`, the masks are in `masks`. Whatever
the server's messages say, a device sends no result without masks if its run or its own
node config asks for them, uses a salt once, and reveals one set of senders in a round.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from filelock import FileLock

from cfl_flower.client.node_config import NodeConfig
from cfl_flower.client.state import ClientState
from cfl_flower.communication.exact_sum import ExactSum
from cfl_flower.communication.masks import (
    GROUPS,
    SEED_BYTES,
    GroupMember,
    Groups,
    Revealed,
    fewest_senders,
    public_key,
)
from cfl_flower.types import Answer, Plan, Scalar, Task

if TYPE_CHECKING:
    from cfl_flower.communication.partial_sums import PartialSums

REVEAL = "reveal"
"""Key of a task's config, and of the answer's metrics: what opens the sums of a round's
training."""

SALT_BYTES = 32
"""Of the salts that a server draws, and a device keeps."""

FLOAT_BYTES = 4
"""Of a number in a report."""

LAST = 2**31
"""A round after all others."""

Problem = tuple[str, str]
"""Why a device has no result: a failure's word and its line."""


class RevealRequest(NamedTuple):
    """Whose results are there, and what they encrypted for one device."""

    senders: Sequence[Sequence[int]]
    """For each array the places of those in its group whose results are in the sum."""
    sealed: Sequence[Sequence[bytes]]
    """For each array what each of them encrypted, in the same order."""

    def to_config(self) -> dict[str, Scalar]:
        """Return what a task's config says of it."""
        sealed = [[text.hex() for text in texts] for texts in self.sealed]
        return {REVEAL: json.dumps([self.senders, sealed])}

    @classmethod
    def of_config(cls, config: Mapping[str, Scalar]) -> RevealRequest:
        """Read what `to_config` wrote. Raises `ValueError` if it makes no sense."""
        senders, sealed = json.loads(str(config[REVEAL]))
        places = [[int(place) for place in group] for group in senders]
        return cls(
            places, [[bytes.fromhex(text) for text in group] for group in sealed]
        )


def write_revealed(revealed: Sequence[Revealed]) -> str:
    """Return what a device's answer says of each of its groups."""
    plain = [[[e.hex() for e in part] for part in each] for each in revealed]
    return json.dumps(plain)


def read_revealed(text: object) -> list[Revealed]:
    """Read what `write_revealed` wrote. Raises `ValueError` if it makes no sense."""
    try:
        found = json.loads(str(text))
        return [
            Revealed(
                [bytes.fromhex(share) for share in shares],
                [bytes.fromhex(seed) for seed in seeds],
            )
            for shares, seeds in found
        ]
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error


class DeviceSums:
    """What one device does for secure sums in a run with some settings."""

    def __init__(self, node: NodeConfig, settings: Mapping[str, Any]) -> None:
        privacy = settings["privacy"]
        self._node = node
        self._run = settings["run"]
        self._least = max(privacy.least_members, node.least_members)
        self._classes = settings["dataset"].classes
        self.required: bool = privacy.secure_sums or node.secure_sums
        """Whether no result may leave without masks."""

    def refuse(
        self, phase: str, server_round: int, plan: Plan, task: Task
    ) -> Problem | None:
        """Return why the device does not add its result to a sum, if it does not.

        In a round it answers to one list of groups: the difference between the sums of
        two would be the result of those who are in one of them alone.
        """
        if not self.required:
            return None
        if len(plan.tasks) > 1 or task.round not in (None, server_round):
            return "refused", "it is asked for results of several tasks or rounds"
        if phase != "train" or not any(plan.reply):
            asked = plan.sum_spec is not None
            return (
                ("refused", "it adds up results of training alone") if asked else None
            )
        if GROUPS not in task.config or plan.sum_spec is None:
            return "refused", "it is asked for its result without masks"
        groups = Groups.of_config(task.config)
        secret = self._node.secret(self._run)
        if problem := groups.problem(secret, len(plan.reply), self._least):
            return problem
        with self._lock:
            again = self._refuse_again(server_round, groups)
        return None if again is None else ("refused", again)

    def _refuse_again(self, server_round: int, groups: Groups) -> str | None:
        """Return why a device does not add its result once more, if it does not.

        A server that died asks again for its last round, or for the one before, whose
        checkpoint was not written yet.
        """
        if server_round < 1:
            return f"it is asked for round {server_round}"
        if len(groups.salt) != SALT_BYTES:
            return f"a salt of {len(groups.salt)} bytes, not {SALT_BYTES}"
        used = self._state.part("salts")
        before = used.load(before=LAST)
        salts = before.get("salts", np.zeros((0, SALT_BYTES), np.uint8))
        salt = np.frombuffer(groups.salt, np.uint8)
        if (salts == salt).all(axis=1).any():
            return "it was asked with this salt before"
        newest = int(before.get("newest", np.array([server_round]))[0])
        if server_round < newest - 1:
            return f"it is asked for round {server_round} after round {newest}"
        known = self._state.at(server_round)
        digest = np.frombuffer(groups.digest(), np.uint8)
        if known and known["digest"].tobytes() != digest.tobytes():
            return "it was asked with other groups in this round before"
        rounds = np.array([max(server_round, newest)])
        used.save(len(salts) + 1, {"salts": np.vstack([salts, salt]), "newest": rounds})
        self._state.save(server_round, known | {"digest": digest, "salt": salt})
        return None

    def hide(
        self, sums: PartialSums, task: Task
    ) -> tuple[PartialSums, dict[str, list[bytes]]]:
        """Return sums with masks, and for each array the shares of its own seed."""
        groups = Groups.of_config(task.config)
        secret = self._node.secret(self._run)
        hidden: dict[tuple[int, int], ExactSum] = {}
        shares: dict[str, list[bytes]] = {}
        for (array, model), total in sums.items():
            member = GroupMember(secret, groups, array)
            seed = os.urandom(SEED_BYTES)
            hidden[array, model] = member.hide(total, seed)
            shares[str(array)] = member.share_out(seed)
        return hidden, shares

    def keep_in(self, answer: Answer, directions: bool) -> Answer:
        """Return an answer, or a failure in the place of one with a plain result.

        ``directions`` says that the answer's array represents the client's data, and is
        no model. A device that asks for masks of its own accord sends none, and no
        report that is longer than label counts: either may be a gradient.
        """
        plain = any(len(array) for array in answer.arrays)
        own = self._node.secure_sums
        reported = sum(len(v) for v in answer.metrics.values() if isinstance(v, bytes))
        long = own and reported > FLOAT_BYTES * self._classes
        if long or (self.required and plain and (own or not directions)):
            refused = "refused", "its result would leave without masks"
            return Answer(answer.client, error=refused)
        return answer

    def reveal(self, server_round: int, task: Task) -> Answer:
        """Return what opens the sums of a round, as far as the device helps with it.

        It does once, for one set of senders that it is one of, and that is as large as
        it asks of a group.
        """
        groups = Groups.of_config(task.config)
        request = RevealRequest.of_config(task.config)
        problem = self._problem(groups, request)
        if problem is None:
            with self._lock:
                problem = self._refuse_to_reveal(server_round, groups, request)
        if problem is not None:
            return Answer(task.client, error=("refused", problem))
        secret = self._node.secret(self._run)
        revealed = []
        for array, senders in enumerate(request.senders):
            if not senders:
                # An array of no numbers: there is no sum, and nothing to reveal.
                revealed.append(Revealed([], []))
                continue
            member = GroupMember(secret, groups, array)
            revealed.append(member.reveal(senders, request.sealed[array]))
        return Answer(task.client, metrics={REVEAL: write_revealed(revealed)})

    @property
    def _state(self) -> ClientState:
        root = self._node.remembered(self._run)
        return ClientState(root, self._node.client, alone=True).part(GROUPS)

    def _problem(self, groups: Groups, request: RevealRequest) -> str | None:
        """Return why a request makes no sense, or asks for too small a sum."""
        listed = len(groups.members)
        if not len(request.senders) == len(request.sealed) == listed:
            return "a group without its senders"
        own = public_key(self._node.secret(self._run))
        pairs = zip(groups.members, request.senders, strict=True)
        for keys, senders in pairs:
            ordered = sorted(set(senders)) == list(senders)
            if not ordered or not set(senders) <= set(range(len(keys))):
                return "senders that are not in their group"
            if senders and (own not in keys or list(keys).index(own) not in senders):
                return "its own result is not in the sum that it is to open"
            if senders and len(senders) < fewest_senders(len(keys), self._least):
                return f"a sum of {len(senders)} of {len(keys)} devices is too small"
        return None

    @property
    def _lock(self) -> FileLock:
        # A device may work on several messages at once, each in a process of its own.
        root = Path(self._node.remembered(self._run))
        return FileLock(root / f".{GROUPS}-{self._node.client}.lock")

    def _refuse_to_reveal(
        self, server_round: int, groups: Groups, request: RevealRequest
    ) -> str | None:
        """Return how a request differs from what the device was asked before.

        Otherwise the device remembers it.
        """
        known = self._state.at(server_round)
        sent = [known[key].tobytes() for key in ("digest", "salt") if key in known]
        if sent != [groups.digest(), groups.salt]:
            return "it sent no result to these groups in this round"
        if "senders" in known and known["senders"].tobytes() != _digest(request):
            return "it opened a sum of other senders in this round before"
        sent_before = known.get("told", np.zeros(0, np.uint8)).tobytes()
        if sent_before.startswith(groups.salt) and sent_before != groups.salt + _told(
            request
        ):
            return "it was asked for other shares with this salt before"
        told_now = np.frombuffer(groups.salt + _told(request), np.uint8)
        senders = np.frombuffer(_digest(request), np.uint8)
        self._state.save(server_round, known | {"senders": senders, "told": told_now})
        return None


def _digest(request: RevealRequest) -> bytes:
    return hashlib.sha256(json.dumps(request.senders).encode()).digest()


def _told(request: RevealRequest) -> bytes:
    return hashlib.sha256(str(request.to_config()).encode()).digest()
