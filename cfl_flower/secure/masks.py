"""Masks that hide a device's result and vanish from the sum of its cluster.

After Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine
Learning" (CCS 2017), section 4: every two devices of a group share a secret, and make a
mask of it that one adds and the other subtracts. Each adds a mask of its own besides,
whose seed it shares out among the group (Shamir, 1979). What is added up are integers
modulo 2^64 (`exact_sum`), so that masks cancel exactly.

When the results are there, each device that sent one reveals its shares of the senders'
own seeds, and the seeds of its masks with those whose result is lost. So the server can
open the sum of all senders, and no result alone: of a sender it never learns the masks
with others that sent, of a lost one never its own mask, even if its result comes late.

A server that tells devices different senders would learn both. So each device signs one
list of senders (section 6), and reveals only what goes with a list that as many have
signed as must send. Those are more than two thirds of the group, so that two lists
cannot both have as many. A server that lets all but one device train with a step of 0,
or weigh nothing, would know what all but one sent. So masks follow from all that the
server says of a result: those of devices that are told something else do not cancel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from Crypto.Protocol.SecretSharing import Shamir
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from cfl_flower.communication.exact_sum import ExactSum
from cfl_flower.communication.identity import KEY_BYTES, public_key, signing_key
from cfl_flower.secure.groups import (
    Groups,
    Revealed,
    fewest_senders,
    share_threshold,
)
from cfl_flower.types import IntArray

SEED_BYTES = 16
"""Length of the seed of a device's own mask, and of Shamir's shares."""

MASK = b"cfl-flower mask"
SHARE = b"cfl-flower share"
OWN_MASK = b"cfl-flower own mask"
NONCE = bytes(12)
"""Each key encrypts one share."""


@dataclass(frozen=True)
class GroupMember:
    """A device in the group of one array of its reply."""

    secret: bytes
    groups: Groups
    array: int
    view: bytes = b""
    """Stands for all of which the array is made, but for the device's data."""

    @cached_property
    def place(self) -> int:
        """Its place among the group's keys."""
        return list(self._keys).index(public_key(self.secret))

    def hide(self, total: ExactSum, own_seed: bytes) -> ExactSum:
        """Return a sum with the masks that it shares with others, and its own."""
        limbs = total.limbs + own_mask(own_seed, total.length)
        for other in range(len(self._keys)):
            if other != self.place:
                mask = stream(self._mask_seed(other), total.length)
                # Modulo 2^64, as meant.
                limbs += mask if self.place < other else -mask
        return ExactSum(limbs, total.terms, total.weight)

    def share_out(self, own_seed: bytes) -> list[bytes]:
        """Return a share of the own seed for each other, which only that one can read.

        Any `share_threshold` of them make the seed. In the device's own place there is
        nothing.
        """
        count = len(self._keys)
        shares = Shamir.split(share_threshold(count), count, own_seed, ssss=False)
        return [
            self._cipher(self.place, other).encrypt(NONCE, share, None)
            if other != self.place
            else b""
            for other, (_, share) in enumerate(shares)
        ]

    def sign(self, senders: Sequence[int]) -> bytes:
        """Return the device's signature of the senders of its group."""
        statement = self.groups.statement(self.array, senders)
        return signing_key(self.secret).sign(statement)

    def has_threshold(self, senders: Sequence[int], signed: Sequence[bytes]) -> bool:
        """Return whether enough senders have signed that they are the senders.

        ``signed`` has the signature of each, in their order.
        """
        valid = sum(
            self.groups.is_signed(self.array, senders, place, signature)
            for place, signature in zip(senders, signed, strict=True)
        )
        return valid >= fewest_senders(len(self._keys), 0)

    def reveal(self, senders: Sequence[int], sealed: Sequence[bytes]) -> Revealed:
        """Return what opens the sum of the senders.

        ``sealed`` has what each of them encrypted for this device.
        """
        shares = [
            self._unseal(sender, text)
            for sender, text in zip(senders, sealed, strict=True)
        ]
        lost = [p for p in range(len(self._keys)) if p not in senders]
        return Revealed(shares, [self._mask_seed(place) for place in lost])

    @property
    def _keys(self) -> Sequence[bytes]:
        return self.groups.members[self.array]

    @cached_property
    def _group(self) -> bytes:
        """Stands for the array and its group, for keys that serve nothing else."""
        return self.groups.group(self.array)

    def _mask_seed(self, other: int) -> bytes:
        # Other keys can have the same secret in common with this device: a key plus a
        # point of low order. Their masks would cancel without the two keys in here.
        keys = sorted([self._keys[self.place], self._keys[other]])
        return self._derive(other, MASK + self._group + self.view + b"".join(keys))

    def _cipher(self, sender: int, receiver: int) -> ChaCha20Poly1305:
        other = receiver if sender == self.place else sender
        keys = [self._keys[sender], self._keys[receiver]]
        return ChaCha20Poly1305(
            self._derive(other, SHARE + self._group + b"".join(keys))
        )

    def _derive(self, other: int, purpose: bytes) -> bytes:
        peer = X25519PublicKey.from_public_bytes(self._keys[other][:KEY_BYTES])
        own = X25519PrivateKey.from_private_bytes(self.secret)
        shared = own.exchange(peer)
        return HKDF(hashes.SHA256(), KEY_BYTES, self.groups.salt, purpose).derive(
            shared
        )

    def _unseal(self, sender: int, text: bytes) -> bytes:
        if sender == self.place:
            return b""
        try:
            return self._cipher(sender, self.place).decrypt(NONCE, text, None)
        except (InvalidTag, ValueError):
            return b""


def unmask(
    total: ExactSum, members: int, revealed: Mapping[int, Revealed | None]
) -> ExactSum | None:
    """Return the senders' sum without masks; None if too few revealed what it takes.

    Parameters
    ----------
    total
        The sum of what the senders sent.
    members
        How many are in their group.
    revealed
        What each sender revealed, by its place; None for one that is lost since.
    """
    senders = sorted(revealed)
    lost = [place for place in range(members) if place not in revealed]
    limbs = total.limbs.copy()
    for number, sender in enumerate(senders):
        shares = [
            (place + 1, shown.shares[number])
            for place, shown in revealed.items()
            if shown is not None and len(shown.shares[number]) == SEED_BYTES
        ]
        needed = share_threshold(members)
        if len(shares) < needed:
            return None
        seed = Shamir.combine(shares[:needed], ssss=False)
        limbs -= own_mask(seed, total.length)
        for other, place in enumerate(lost):
            shown = revealed[sender]
            if shown is None:
                return None
            mask = stream(shown.seeds[other], total.length)
            limbs -= mask if sender < place else -mask
    return ExactSum(limbs, total.terms, total.weight)


def own_mask(seed: bytes, length: int) -> IntArray:
    """Return a device's own mask, (2, length), from its seed of 16 bytes."""
    key = HKDF(hashes.SHA256(), KEY_BYTES, None, OWN_MASK).derive(seed)
    return stream(key, length)


def stream(key: bytes, length: int) -> IntArray:
    """Return the mask, (2, length), that follows from a key of 32 bytes."""
    # A key of its own for each mask: the nonce can stay 0.
    cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), None).encryptor()
    bits = cipher.update(bytes(2 * 8 * length))
    return np.frombuffer(bits, "<i8").reshape(2, length)
