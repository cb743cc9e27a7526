"""A device's side of secure sums: what it refuses, hides, signs and reveals.

The server's side is `cfl_flower.engine.secure_sums`, the masks are in `masks`. Whatever
the server's messages say, a device sends no result without masks if its run or its own
node config asks for them, uses a salt once, and signs one list of senders in a round,
and of a model. If its own node config asks for masks, of its data it sends nothing
besides but counts of labels, and the losses and counts of tests.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from cfl_flower.client.context import ClientState
from cfl_flower.client.drift_report import DriftReport
from cfl_flower.client.model_privacy import COVERED, REPORTS
from cfl_flower.client.node_config import NodeConfig
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
from cfl_flower.communication.partial_sums import PartialSums
from cfl_flower.communication.records import TaskBatch
from cfl_flower.types import (
    LEFT_OUT,
    OUTCOMES,
    TELEMETRY,
    UPDATE_LENGTHS,
    Answer,
    Scalar,
    Task,
)

REVEAL = "reveal"
"""Key of a task's config, and of the answer's metrics: what opens the sums of a round's
training."""

SIGNED = "signed"
"""Key of an answer's metrics: a device's signatures of the senders."""

SALT_BYTES = 32
"""Of the salts that a server draws, and a device keeps."""

DIGEST_BYTES = 32
"""Of what stands for a model."""

EMPTY = "empty"
"""The metric in which a tested client says that it has no samples any more."""

LAST = 2**31
"""A round after all others."""

Problem = tuple[str, str]
"""Why a device has no result: a failure's word and its line."""


class RevealRequest(NamedTuple):
    """Whose results are there, what they encrypted for one device, and who signed.

    A request without signatures asks for the device's own.
    """

    senders: Sequence[Sequence[int]]
    """For each array the places of those in its group whose results are in the sum."""
    sealed: Sequence[Sequence[bytes]] = ()
    """For each array what each of them encrypted, in the same order."""
    signed: Sequence[Sequence[bytes]] = ()
    """For each array the signature of each, in the same order; empty if it has none."""

    def to_config(self) -> dict[str, Scalar]:
        """Return what a task's config says of it."""
        texts = [_to_hex(self.sealed), _to_hex(self.signed)]
        return {REVEAL: json.dumps([self.senders, *texts])}

    @classmethod
    def of_config(cls, config: Mapping[str, Scalar]) -> RevealRequest:
        """Read what `to_config` wrote. Raises `ValueError` if it makes no sense."""
        senders, sealed, signed = json.loads(str(config[REVEAL]))
        places = [[int(place) for place in group] for group in senders]
        return cls(places, _of_hex(sealed), _of_hex(signed))


def _to_hex(texts: Sequence[Sequence[bytes]]) -> list[list[str]]:
    return [[text.hex() for text in group] for group in texts]


def _of_hex(texts: Sequence[Sequence[str]]) -> list[list[bytes]]:
    return [[bytes.fromhex(text) for text in group] for group in texts]


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
        groups = Groups.of_config(task.config)
        secret = self._node.secret(self._run)
        if problem := groups.problem(secret, len(plan.reply), self._least):
            return problem
        starts = [batch.models[task.models[base]] for base in plan.sum_spec.bases]
        digests = [hashlib.sha256(start.tobytes()).digest() for start in starts]
        with self._lock:
            again = self._refuse_again(batch.round, groups, digests, _view(batch, task))
        return None if again is None else ("refused", again)

    def _refuse_again(
        self, server_round: int, groups: Groups, models: Sequence[bytes], view: bytes
    ) -> str | None:
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
        salt = _array(groups.salt)
        if (salts == salt).all(axis=1).any():
            return "it was asked with this salt before"
        newest = int(before.get("newest", np.array([server_round]))[0])
        if server_round < newest - 1:
            return f"it is asked for round {server_round} after round {newest}"
        known = self._state.at(server_round)
        digest = _array(groups.digest())
        if known and known["digest"].tobytes() != digest.tobytes():
            return "it was asked with other groups in this round before"
        rounds = np.array([max(server_round, newest)])
        used.save(len(salts) + 1, {"salts": np.vstack([salts, salt]), "newest": rounds})
        now = {"digest": digest, "salt": salt, "models": _array(b"".join(models))}
        self._state.save(server_round, known | now | {"view": _array(view)})
        return None

    def hide(
        self, sums: PartialSums, server_round: int, task: Task
    ) -> tuple[PartialSums, dict[str, list[bytes]]]:
        """Return sums with masks, and for each array the shares of its own seed."""
        groups = Groups.of_config(task.config)
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

    def keep_to_list(
        self, phase: str, answer: Answer, counted: Callable[[], DriftReport]
    ) -> Answer:
        """Return an answer with no other metrics than a device's own rule allows.

        That is, if it asks for masks of its own accord. Its report must be that of the
        labels that it ``counted`` itself: numbers as few may be a gradient. A test
        loses what is not allowed; any other answer is a failure, as its method needs
        what it lacks.
        """
        if not self._node.secure_sums:
            return answer
        allowed = COVERED[phase] | {EMPTY}
        # Half of another report would tell that it was made.
        if answer.metrics.keys() >= REPORTS and (
            counted().to_metrics().items() <= answer.metrics.items()
        ):
            allowed |= REPORTS
        # The engine can do without its own measures, but not without lengths. At a
        # model of a server's making, the length of an update tells of single samples.
        spared = set(TELEMETRY) - {UPDATE_LENGTHS}
        lost = sorted(answer.metrics.keys() - allowed - spared)
        if lost and phase != "evaluate":
            why = f"its owner lets no {', '.join(lost)} leave, with secure-sums"
            return Answer(answer.client, error=("refused", why))
        kept = {k: v for k, v in answer.metrics.items() if k in allowed}
        if OUTCOMES in answer.metrics:
            kept[OUTCOMES] = LEFT_OUT
        return replace(answer, metrics=kept)

    def open_sums(self, server_round: int, task: Task) -> Answer:
        """Return the device's signature of a round's senders, or what opens their sums.

        It signs one list of senders that it is one of, and that is as large as it asks
        of a group. It reveals what goes with a list that enough of them have signed.
        """
        groups = Groups.of_config(task.config)
        request = RevealRequest.of_config(task.config)
        # An array of no numbers has no senders: there is no sum, and nothing to reveal.
        summed = {
            array: self._member(server_round, groups, array)
            for array, senders in enumerate(request.senders)
            if senders
        }
        problem = self._problem(groups, request, summed)
        if problem is None:
            with self._lock:
                problem = self._refuse_to_open(server_round, groups, request)
        if problem is not None:
            return Answer(task.client, error=("refused", problem))
        if not request.signed:
            signed = [
                summed[array].sign(senders).hex() if senders else ""
                for array, senders in enumerate(request.senders)
            ]
            return Answer(task.client, metrics={SIGNED: json.dumps(signed)})
        revealed = [
            summed[array].reveal(senders, request.sealed[array])
            if senders
            else Revealed([], [])
            for array, senders in enumerate(request.senders)
        ]
        return Answer(task.client, metrics={REVEAL: write_revealed(revealed)})

    def _member(self, server_round: int, groups: Groups, array: int) -> GroupMember:
        """Return the device as it masks an array in a round: by what it was told."""
        known = {n: each.tobytes() for n, each in self._state.at(server_round).items()}
        told = known.get("view", b"") + _model(known.get("models", b""), array)
        return GroupMember(self._node.secret(self._run), groups, array, told)

    @property
    def _state(self) -> ClientState:
        root = self._node.remembered(self._run)
        return ClientState(root, self._node.client, alone=True).part(GROUPS)

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

    @property
    def _lock(self) -> FileLock:
        # A device may work on several messages at once, each in a process of its own.
        root = Path(self._node.remembered(self._run))
        return FileLock(root / f".{GROUPS}-{self._node.client}.lock")

    def _refuse_to_open(
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
            return "it signed other senders in this round before"
        now = known | {"senders": _array(_digest(request))}
        if request.signed:
            told = groups.salt + _told(request)
            before = known.get("told", np.zeros(0, np.uint8)).tobytes()
            if before.startswith(groups.salt) and before != told:
                return "it was asked for other shares with this salt before"
            now["told"] = _array(told)
        if self._had_before(known["models"].tobytes(), groups, request):
            return "it had this model before, in a sum of other senders"
        self._state.save(server_round, now)
        return None

    def _had_before(
        self, models: bytes, groups: Groups, request: RevealRequest
    ) -> bool:
        """Return whether it signed other senders for one of its models in any round.

        The difference between two sums of versions of one model would be the results
        of those who are in one alone. Otherwise the device remembers the senders.
        """
        part = self._state.part("models")
        before = part.load(before=LAST)
        now = dict(before)
        for array, senders in enumerate(request.senders):
            if senders:
                name = f"{array}-{_model(models, array).hex()}"
                keys = b"".join(groups.members[array][place] for place in senders)
                now[name] = _array(hashlib.sha256(keys).digest())
        if any(now[name].tobytes() != each.tobytes() for name, each in before.items()):
            return True
        if len(now) > len(before):
            part.save(len(now), now)
        return False


def _view(batch: TaskBatch, task: Task) -> bytes:
    """Return 32 bytes for all that a server says of a result, but whose it is.

    The models from which arrays are trained stand apart: members of one group may be in
    different groups with another array.
    """
    spec = batch.plan.sum_spec
    assert spec is not None
    config = {k: v for k, v in task.config.items() if k != GROUPS}
    told = [batch.settings, batch.round, batch.plan.config, config, asdict(spec)]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).digest()


def _model(digests: bytes, array: int) -> bytes:
    """Return what stands for the model from which an array is trained."""
    return digests[array * DIGEST_BYTES : (array + 1) * DIGEST_BYTES]


def _array(data: bytes) -> NDArray[np.uint8]:
    """Return bytes as the state keeps them."""
    return np.frombuffer(data, np.uint8)


def _digest(request: RevealRequest) -> bytes:
    return hashlib.sha256(json.dumps(request.senders).encode()).digest()


def _told(request: RevealRequest) -> bytes:
    sealed = json.dumps(_to_hex(request.sealed))
    return hashlib.sha256(sealed.encode()).digest()
