"""What a device refuses, hides, signs and reveals of secure sums.

Whatever the server's messages say, it sends no result without masks if its run or its
own node config asks for them, and nothing that `SumMemory` refuses.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from cfl_flower.client.node_config import NodeConfig
from cfl_flower.communication.exact_sum import ExactSum
from cfl_flower.communication.identity import public_key
from cfl_flower.communication.partial_sums import PartialSums
from cfl_flower.communication.task_records import TaskBatch
from cfl_flower.secure.groups import (
    GROUPS,
    REVEAL,
    SIGNED,
    Groups,
    Revealed,
    RevealRequest,
    fewest_senders,
    from_text,
    to_text,
)
from cfl_flower.secure.masks import SEED_BYTES, GroupMember
from cfl_flower.secure.memory import SumMemory, digest_of
from cfl_flower.types import Answer, Task

Problem = tuple[str, str]
"""Why a device has no result: a failure's word and its line."""


class DeviceSums:
    """What one device does for secure sums in a run with some settings."""

    def __init__(self, node: NodeConfig, settings: Mapping[str, Any]) -> None:
        privacy = settings["privacy"]
        self._node = node
        self._run = settings["run"]
        self._memory = SumMemory(node, self._run)
        self._least = max(privacy.least_members, node.least_members)
        self.required: bool = privacy.secure_sums or node.secure_sums
        """Whether no result may leave without masks."""

    def refuse(self, batch: TaskBatch, task: Task) -> Problem | None:
        """Return why the device does not add its result to a sum, if it does not.

        In a round it answers to one list of groups: the difference between the sums of
        two would be the result of those who are in one of them alone.
        """
        if not self.required:
            return None
        plan = batch.plan
        if len(plan.tasks) > 1 or task.round not in (None, batch.round):
            return "refused", "it is asked for results of several tasks or rounds"
        if batch.phase != "train" or not any(plan.reply):
            asked = plan.sum_spec is not None
            return (
                ("refused", "it adds up results of training alone") if asked else None
            )
        if GROUPS not in task.config or plan.sum_spec is None:
            return "refused", "it is asked for its result without masks"
        groups = from_text(Groups, task.config[GROUPS])
        secret = self._node.secret(self._run)
        if problem := groups.problem(secret, len(plan.reply), self._least):
            return problem
        starts = [batch.models[task.models[base]] for base in plan.sum_spec.bases]
        digests = [hashlib.sha256(start.tobytes()).digest() for start in starts]
        view = view_of(batch, task)
        with self._memory.lock:
            again = self._memory.refuse_again(batch.round, groups, digests, view)
        return None if again is None else ("refused", again)

    def hide(
        self, sums: PartialSums, server_round: int, task: Task
    ) -> tuple[PartialSums, dict[str, list[bytes]]]:
        """Return sums with masks, and for each array the shares of its own seed."""
        groups = from_text(Groups, task.config[GROUPS])
        hidden: dict[tuple[int, int], ExactSum] = {}
        shares: dict[str, list[bytes]] = {}
        for (array, model), total in sums.items():
            member = self._member(server_round, groups, array)
            seed = os.urandom(SEED_BYTES)
            hidden[array, model] = member.hide(total, seed)
            shares[str(array)] = member.share_out(seed)
        return hidden, shares

    def keep_in(self, answer: Answer, directions: bool) -> Answer:
        """Return an answer, or a failure in the place of one with a plain result.

        ``directions`` says that the answer's array represents the client's data, and is
        no model. A device that asks for masks of its own accord sends none.
        """
        plain = any(len(array) for array in answer.arrays)
        if self.required and plain and (self._node.secure_sums or not directions):
            refused = "refused", "its result would leave without masks"
            return Answer(answer.client, error=refused)
        return answer

    def open_sums(self, server_round: int, task: Task) -> Answer:
        """Return the device's signature of a round's senders, or what opens their sums.

        It signs one list of senders that it is one of, and that is as large as it asks
        of a group. It reveals what goes with a list that enough of them have signed.
        """
        groups = from_text(Groups, task.config[GROUPS])
        request = from_text(RevealRequest, task.config[REVEAL])
        # An array of no numbers has no senders: there is no sum, and nothing to reveal.
        summed = {
            array: self._member(server_round, groups, array)
            for array, senders in enumerate(request.senders)
            if senders
        }
        problem = self._problem(groups, request, summed)
        if problem is None:
            with self._memory.lock:
                problem = self._memory.refuse_to_open(server_round, groups, request)
        if problem is not None:
            return Answer(task.client, error=("refused", problem))
        if not request.signed:
            signed = [
                summed[array].sign(senders) if senders else b""
                for array, senders in enumerate(request.senders)
            ]
            return Answer(task.client, metrics={SIGNED: to_text(signed)})
        revealed = [
            summed[array].reveal(senders, request.sealed[array])
            if senders
            else Revealed([], [])
            for array, senders in enumerate(request.senders)
        ]
        return Answer(task.client, metrics={REVEAL: to_text(revealed)})

    def _member(self, server_round: int, groups: Groups, array: int) -> GroupMember:
        """Return the device as it masks an array in a round: by what it was told."""
        told = self._memory.told(server_round, array)
        return GroupMember(self._node.secret(self._run), groups, array, told)

    def _problem(
        self, groups: Groups, request: RevealRequest, summed: Mapping[int, GroupMember]
    ) -> str | None:
        """Return why a request makes no sense, or is not to be answered.

        It asks for too small a sum, or too few have signed whose sum it is.
        """
        told = {len(groups.members), len(request.senders)}
        if request.signed:
            told |= {len(request.sealed), len(request.signed)}
        if len(told) > 1:
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
        if request.signed and not all(
            member.has_threshold(request.senders[array], request.signed[array])
            for array, member in summed.items()
        ):
            return "too few of the senders have signed that they are the senders"
        return None


def view_of(batch: TaskBatch, task: Task) -> bytes:
    """Return 32 bytes for all that a server says of a result, but whose it is.

    The models from which arrays are trained stand apart: members of one group may be in
    different groups with another array.
    """
    spec = batch.plan.sum_spec
    assert spec is not None
    config = {k: v for k, v in task.config.items() if k != GROUPS}
    told = [batch.settings, batch.round, batch.plan.config, config, asdict(spec)]
    return digest_of(told)
