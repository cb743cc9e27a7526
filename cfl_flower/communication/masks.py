"""Masks that hide a device's result and vanish from the sum of its cluster.

After Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine
Learning" (CCS 2017), section 4: every two devices of a group share a secret, and make a
mask of it that one adds and the other subtracts. What is added up are integers modulo
2^64 (`exact_sum`), so that all masks of a group cancel exactly. There are no shares to
repair a sum with if a device drops out: it is discarded.

A group is the list of its devices' public keys, and tells nobody who they are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from cfl_flower.communication.exact_sum import ExactSum
from cfl_flower.types import IntArray, Scalar

GROUPS = "groups"
"""Key of a task's config: whose masks are in the sum of each array of its reply."""

KEY_BYTES = 32

FIELD = 2**255 - 19
"""Size of the field of X25519 (RFC 7748): a key is a number below it."""

PURPOSE = b"cfl-flower masks"


class Groups(NamedTuple):
    """Whose masks a device adds to each array of its reply."""

    salt: bytes
    """Another one for each plan, so that no mask is used twice."""
    members: Sequence[Sequence[bytes]]
    """For each array the public keys of its group, sorted."""

    def to_config(self) -> dict[str, Scalar]:
        """Return what a task's config says of it."""
        members = [[key.hex() for key in keys] for keys in self.members]
        return {GROUPS: json.dumps([self.salt.hex(), members])}

    @classmethod
    def of_config(cls, config: Mapping[str, Scalar]) -> Groups:
        """Read what `to_config` wrote. Raises `ValueError` if it makes no sense."""
        salt, members = json.loads(str(config[GROUPS]))
        keys = [[bytes.fromhex(key) for key in group] for group in members]
        return cls(bytes.fromhex(salt), keys)

    def digest(self) -> bytes:
        """Return 32 bytes that stand for all groups, without the salt."""
        return hashlib.sha256(json.dumps(_listed(self.members)).encode()).digest()

    def problem(self, secret: bytes, arrays: int, least: int) -> tuple[str, str] | None:
        """Return why a device should not add its result, as a failure's word and line.

        There is a group for each of the arrays, of at least ``least`` devices with
        different keys, this one's own among them.
        """
        own = public_key(secret)
        if any(own not in keys for keys in self.members):
            return "identity", "a group of masks has another key of this device"
        smallest = min((len(set(keys)) for keys in self.members), default=0)
        if len(self.members) != arrays or smallest < least:
            least_asked = f"privacy.least_members={least}"
            return "refused", f"a group of {smallest} devices, fewer than {least_asked}"
        return None


def public_key(secret: bytes) -> bytes:
    """Return the public key of a device's secret, 32 bytes each."""
    key = X25519PrivateKey.from_private_bytes(secret)
    return key.public_key().public_bytes_raw()


def is_public_key(key: bytes) -> bool:
    """Return whether a secret in common can be made with a public key.

    None can with a point of low order, on which whoever tried would fail. A number
    above the field's size is a second way to write another key.
    """
    if int.from_bytes(key, "little") >= FIELD:
        return False
    try:
        peer = X25519PublicKey.from_public_bytes(key)
        X25519PrivateKey.generate().exchange(peer)
    except ValueError:
        return False
    return True


def add_masks(total: ExactSum, secret: bytes, groups: Groups, array: int) -> ExactSum:
    """Return a sum with a device's masks of an array of its reply."""
    keys, own = groups.members[array], public_key(secret)
    private = X25519PrivateKey.from_private_bytes(secret)
    listed = json.dumps([array, *_listed([keys])]).encode()
    purpose = PURPOSE + hashlib.sha256(listed).digest()
    limbs = total.limbs.copy()
    for other in set(keys) - {own}:
        shared = private.exchange(X25519PublicKey.from_public_bytes(other))
        # Other keys can have the same secret in common with this device: a key plus a
        # point of low order. Their masks would cancel without the two keys in here.
        pair = purpose + min(own, other) + max(own, other)
        mask = _mask(shared, groups.salt, pair, total.length)
        # Modulo 2^64, as meant.
        if own < other:
            limbs += mask
        else:
            limbs -= mask
    return ExactSum(limbs, total.terms, total.weight)


def _mask(shared: bytes, salt: bytes, purpose: bytes, length: int) -> IntArray:
    """Return the mask of two devices, (2, length): a stream that only they can make."""
    key = HKDF(hashes.SHA256(), KEY_BYTES, salt, purpose).derive(shared)
    # A key of its own for each mask: the nonce can stay 0.
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), None).encryptor()
    bits = stream.update(bytes(2 * 8 * length))
    mask: IntArray = np.frombuffer(bits, "<i8").reshape(2, length)
    return mask


def _listed(members: Sequence[Sequence[bytes]]) -> list[list[str]]:
    return [sorted(key.hex() for key in keys) for keys in members]
