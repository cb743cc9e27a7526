"""Masks that hide a device's result and vanish from the sum of its cluster.

After Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine
Learning" (CCS 2017), section 4: every two devices of a group share a secret, and make a
mask of it that one adds and the other subtracts. What is added up are integers modulo
2^64 (`exact_sum`), so that all masks of a group cancel to the bit. There are no shares
to mend a sum with if a device drops out: it is thrown away.
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
from cfl_flower.types import ClientId, IntArray, Scalar, client_order

GROUPS = "groups"
"""Key of a task's config: whose masks are in the sum of each array of its reply."""

KEY_BYTES = 32

PURPOSE = b"cfl-flower masks"

Keys = Mapping[ClientId, bytes]
"""The public key of each device of a group."""


class Groups(NamedTuple):
    """Whose masks a device adds to each array of its reply."""

    salt: bytes
    """Another one for each plan, so that no mask is used twice."""
    members: Sequence[Keys]
    """For each array."""

    def to_config(self) -> dict[str, Scalar]:
        """Return what a task's config says of it."""
        members = [[[c, key.hex()] for c, key in keys.items()] for keys in self.members]
        return {GROUPS: json.dumps([self.salt.hex(), members])}

    @classmethod
    def of_config(cls, config: Mapping[str, Scalar]) -> Groups:
        """Read what `to_config` wrote. Raises `ValueError` if it makes no sense."""
        salt, members = json.loads(str(config[GROUPS]))
        keys = [{c: bytes.fromhex(key) for c, key in group} for group in members]
        return cls(bytes.fromhex(salt), keys)

    def problem(self, client: ClientId, secret: bytes, least: int) -> str:
        """Return why a device should not add its result; empty if it should.

        Each group has at least ``least`` devices with different keys, this one's own
        among them.
        """
        own = public_key(secret)
        if any(keys.get(client) != own for keys in self.members):
            return "a group of masks has another key of this device"
        smallest = min((len(set(keys.values())) for keys in self.members), default=0)
        if smallest < least:
            return f"a group of {smallest}, fewer than privacy.least_members={least}"
        return ""


def public_key(secret: bytes) -> bytes:
    """Return the public key of a device's secret, 32 bytes each."""
    key = X25519PrivateKey.from_private_bytes(secret)
    return key.public_key().public_bytes_raw()


def add_masks(
    total: ExactSum, client: ClientId, secret: bytes, groups: Groups, array: int
) -> ExactSum:
    """Return a sum with a device's masks of an array of its reply."""
    keys = groups.members[array]
    limbs = total.limbs.copy()
    with np.errstate(over="ignore"):  # Modulo 2^64, as meant.
        for other in keys.keys() - {client}:
            mask = _mask(secret, keys, other, groups.salt, array, total.length)
            if client_order(client) < client_order(other):
                limbs += mask
            else:
                limbs -= mask
    return ExactSum(limbs, total.terms, total.weight)


def _mask(
    secret: bytes, keys: Keys, other: ClientId, salt: bytes, array: int, length: int
) -> IntArray:
    """Return the mask of two devices, (2, length): a stream that only they can make."""
    peer = X25519PublicKey.from_public_bytes(keys[other])
    shared = X25519PrivateKey.from_private_bytes(secret).exchange(peer)
    ordered = sorted(keys.items(), key=lambda item: client_order(item[0]))
    listed = json.dumps([array, [[c, key.hex()] for c, key in ordered]])
    purpose = PURPOSE + hashlib.sha256(listed.encode()).digest()
    key = HKDF(hashes.SHA256(), KEY_BYTES, salt, purpose).derive(shared)
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), None).encryptor()
    bits = stream.update(bytes(2 * 8 * length))
    mask: IntArray = np.frombuffer(bits, "<i8").reshape(2, length)
    return mask
