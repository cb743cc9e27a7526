"""Whose results are in a sum, and what server and devices tell each other of it.

A group is the list of its devices' public keys, and does not reveal who they are. A
device is its place in that list. All of it travels as text in tasks and answers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import ConfigDict, TypeAdapter

from cfl_flower.communication.identity import KEY_BYTES, any_in_common, public_key

GROUPS = "groups"
"""Key of a task's config: whose masks are in the sum of each array of its reply."""

REVEAL = "reveal"
"""Key of a task's config, and of the answer's metrics: what opens the sums of a round's
training."""

SIGNED = "signed"
"""Key of an answer's metrics: a device's signatures of the senders."""

SENDERS = b"cfl-flower senders"

HEX = ConfigDict(val_json_bytes="hex")

T = TypeVar("T")


class Groups(NamedTuple):
    """Whose masks a device adds to each array of its reply."""

    salt: bytes
    """Another one for each plan, so that no mask is used twice."""
    members: Sequence[Sequence[bytes]]
    """Public keys of each array's group, sorted."""

    def digest(self) -> bytes:
        """Return 32 bytes that stand for all groups, without the salt."""
        return hashlib.sha256(json.dumps(_listed(self.members)).encode()).digest()

    def group(self, array: int) -> bytes:
        """Return 32 bytes that stand for an array and its group, without the salt."""
        listed = json.dumps([array, *_listed([self.members[array]])])
        return hashlib.sha256(listed.encode()).digest()

    def statement(self, array: int, senders: Sequence[int]) -> bytes:
        """Return what a device signs: whose results are in the sum of an array."""
        told = json.dumps(list(senders)).encode()
        return SENDERS + self.salt + self.group(array) + told

    def is_signed(
        self, array: int, senders: Sequence[int], place: int, signature: bytes
    ) -> bool:
        """Return whether a member of an array's group has signed its senders."""
        key = self.members[array][place][KEY_BYTES:]
        try:
            signer = Ed25519PublicKey.from_public_bytes(key)
            signer.verify(signature, self.statement(array, senders))
        except (InvalidSignature, ValueError):
            return False
        return True

    def problem(self, secret: bytes, arrays: int, least: int) -> tuple[str, str] | None:
        """Return why a device should not add its result, as a failure's word and line.

        There is a group for each of the arrays, of at least ``least`` devices with
        different keys, this one's own among them, sorted.
        """
        own = public_key(secret)
        if any(own not in keys for keys in self.members):
            return "identity", "a group of masks has another key of this device"
        smallest = min((len(set(keys)) for keys in self.members), default=0)
        if len(self.members) != arrays or smallest < least:
            least_asked = f"privacy.least_members={least}"
            return "refused", f"a group of {smallest} devices, fewer than {least_asked}"
        for keys in self.members:
            if list(keys) != sorted(set(keys)) or any_in_common(keys):
                return "refused", "a group has a key twice, or is not sorted"
        return None


class RevealRequest(NamedTuple):
    """Whose results are there, what they encrypted for one device, and who signed.

    A request without signatures asks for the device's own.
    """

    senders: Sequence[Sequence[int]]
    """Places, in each array's group, of the members whose results are in the sum."""
    sealed: Sequence[Sequence[bytes]] = ()
    """Shares that each of them encrypted for each array, in the same order."""
    signed: Sequence[Sequence[bytes]] = ()
    """Signature of each for each array, in the same order; empty without one."""


class Revealed(NamedTuple):
    """What a device reveals of a group once the results are there."""

    shares: Sequence[bytes]
    """Share of each sender's own seed, in their order; empty for its own, and for one
    that cannot be decrypted."""
    seeds: Sequence[bytes]
    """The seed of its mask with each lost device, in their order."""


def to_text(value: object) -> str:
    """Return groups, a request or an answer as text, bytes in hexadecimal digits."""
    return json.dumps(value, default=bytes.hex)


def from_text(kind: type[T], text: object) -> T:
    """Read what `to_text` wrote. Raises `ValueError` if it makes no sense."""
    return TypeAdapter(kind, config=HEX).validate_json(str(text))


def fewest_senders(members: int, least: int) -> int:
    """Return how many of a group must send for its sum to be opened.

    Fewer than a third may be lost, as long as ``least`` are left.
    """
    return max(least, members - (members - 1) // 3)


def share_threshold(members: int) -> int:
    """Return how many of the others' shares make a device's own seed.

    One less than send at least: a device has no share of its own seed, with which it
    would help a server that calls it lost to others.
    """
    return fewest_senders(members, 0) - 1


def _listed(members: Sequence[Sequence[bytes]]) -> list[list[str]]:
    return [sorted(key.hex() for key in keys) for keys in members]
