"""What a device remembers of sums, so that no two of them differ by a single result.

It uses a salt once, answers to one list of groups in a round, and signs one list of
senders in a round, and of a model.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from cfl_flower.client.context import ClientState
from cfl_flower.client.node_config import NodeConfig
from cfl_flower.secure.groups import GROUPS, Groups, RevealRequest

SALT_BYTES = 32
"""Length of the salts that a server draws, and a device keeps."""

DIGEST_BYTES = 32
"""Length of a model's digest."""

LAST = 2**31
"""A round after all others."""


class SumMemory:
    """What a device remembers of the sums of a run."""

    def __init__(self, node: NodeConfig, run: str) -> None:
        self._node = node
        self._run = run

    @property
    def _state(self) -> ClientState:
        root = self._node.remembered(self._run)
        return ClientState(root, self._node.client, alone=True).part(GROUPS)

    @property
    def lock(self) -> FileLock:
        """Keeps others of the device's processes from its memory."""
        # A device may work on several messages at once, each in a process of its own.
        root = Path(self._node.remembered(self._run))
        return FileLock(root / f".{GROUPS}-{self._node.client}.lock")

    def told(self, server_round: int, array: int) -> bytes:
        """Return what stands for all that a device was told of an array in a round."""
        known = {n: each.tobytes() for n, each in self._state.at(server_round).items()}
        return known.get("view", b"") + _model(known.get("models", b""), array)

    def refuse_again(
        self, server_round: int, groups: Groups, models: Sequence[bytes], view: bytes
    ) -> str | None:
        """Return why a device does not add its result once more, if it does not.

        A server that died asks again for its last round, or for the one before, whose
        checkpoint was not written yet.
        """
        # The sums of what the inputs are scaled by come before the first round.
        if server_round < 0:
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

    def refuse_to_open(
        self, server_round: int, groups: Groups, request: RevealRequest
    ) -> str | None:
        """Return how a request differs from what the device was asked before.

        Otherwise the device remembers it.
        """
        known = self._state.at(server_round)
        sent = [known[key].tobytes() for key in ("digest", "salt") if key in known]
        if sent != [groups.digest(), groups.salt]:
            return "it sent no result to these groups in this round"
        senders = digest_of(request.senders)
        if "senders" in known and known["senders"].tobytes() != senders:
            return "it signed other senders in this round before"
        now = known | {"senders": _array(senders)}
        if request.signed:
            told = groups.salt + digest_of(request.sealed)
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


def _model(digests: bytes, array: int) -> bytes:
    """Return what stands for the model from which an array is trained."""
    return digests[array * DIGEST_BYTES : (array + 1) * DIGEST_BYTES]


def _array(data: bytes) -> NDArray[np.uint8]:
    """Return bytes as the state keeps them."""
    return np.frombuffer(data, np.uint8)


def digest_of(value: object) -> bytes:
    """Return 32 bytes that stand for what JSON can write, with bytes in it."""
    text = json.dumps(value, sort_keys=True, default=bytes.hex)
    return hashlib.sha256(text.encode()).digest()
