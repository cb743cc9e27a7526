"""Masks cancel exactly in the sum of all, and hide what anything less is made of."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from hypothesis import given
from hypothesis import strategies as st

from cfl_flower.communication.exact_sum import ExactSum
from cfl_flower.communication.masks import (
    Groups,
    add_masks,
    is_public_key,
    public_key,
)
from cfl_flower.types import Vector

SECRETS = [bytes([place] * 32) for place in range(1, 5)]
KEYS = sorted(map(public_key, SECRETS))
LENGTH = 50


def single(model: Vector, weight: int = 1) -> ExactSum:
    total = ExactSum.empty(len(model))
    total.add(model, weight)
    return total


def merged(parts: list[ExactSum]) -> ExactSum:
    total = ExactSum.empty(parts[0].length)
    for part in parts:
        total.merge(part)
    return total


@given(st.integers(2, 4), st.integers(0, 2**32 - 1))
def test_all_masks_of_a_group_cancel_exactly(members: int, seed: int) -> None:
    rng, some = np.random.default_rng(seed), SECRETS[:members]
    groups = Groups(b"salt", [sorted(map(public_key, some))])
    parts = [
        single(rng.normal(size=LENGTH).astype(np.float32), int(rng.integers(1, 90)))
        for _ in some
    ]
    pairs = zip(some, parts, strict=True)
    hidden = [add_masks(part, secret, groups, 0) for secret, part in pairs]
    plain, opened = merged(parts), merged(hidden)
    assert opened.is_possible()
    assert opened.mean().tolist() == plain.mean().tolist()
    assert (opened.limbs == plain.limbs).all()


def test_anything_less_than_all_is_no_sum_of_models() -> None:
    groups = Groups(b"salt", [KEYS])
    ones = np.ones(LENGTH, np.float32)
    hidden = [add_masks(single(ones), secret, groups, 0) for secret in SECRETS]
    assert merged(hidden).is_possible()
    for left_out in range(4):
        rest = [each for place, each in enumerate(hidden) if place != left_out]
        assert not merged(rest).is_possible()
    # One with masks of another plan, too.
    other = add_masks(single(ones), SECRETS[0], Groups(b"other", [KEYS]), 0)
    assert not merged([other, *hidden[1:]]).is_possible()


def test_masks_look_random_whatever_is_behind_them() -> None:
    groups = Groups(b"salt", [KEYS, KEYS])
    zeros = single(np.zeros(4096, np.float32))
    (one, two) = (add_masks(zeros, SECRETS[0], groups, a).limbs for a in (0, 1))
    for limbs in (one, two, one - two):
        counts = np.bincount(np.ascontiguousarray(limbs).view(np.uint8).ravel())
        # Of 65,536 bytes 256 of each value, with a standard deviation of 16.
        assert abs(counts - 256).max() < 6 * 16


def test_a_mask_is_the_same_on_any_machine() -> None:
    pair = Groups(b"salt", [KEYS[:2]])
    (secret, _) = (s for s in SECRETS if public_key(s) in KEYS[:2])
    zeros = single(np.zeros(2, np.float32))
    mask = add_masks(zeros, secret, pair, 0).limbs - zeros.limbs
    # As it was when this was written: X25519, HKDF with SHA-256, ChaCha20.
    assert abs(mask).tolist() == [
        [1516240741813325637, 1852933849791169325],
        [6188153036702941345, 3849185290913784103],
    ]


FIELD = 2**255 - 19
CURVE = 486662
LOW_ORDER = [
    0,
    1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
]
"""u of the points of order 2, 4 and 8 of Curve25519 (RFC 7748)."""


def root(u: int) -> int:
    """Return a v of the point with a given u."""
    square = u * (u * u + CURVE * u + 1) % FIELD
    v = pow(square, (FIELD + 3) // 8, FIELD)
    v = v if v * v % FIELD == square else v * pow(2, (FIELD - 1) // 4, FIELD) % FIELD
    assert v * v % FIELD == square
    return v


def twins(key: bytes) -> list[bytes]:
    """Return a key plus each point of low order: seven that share all its secrets."""
    u = int.from_bytes(key, "little")
    sums = set()
    for low in LOW_ORDER:
        for v in (root(u), -root(u)):
            slope = (v - root(low)) * pow(u - low, -1, FIELD)
            sums.add((slope * slope - CURVE - u - low) % FIELD)
    return [each.to_bytes(32, "little") for each in sorted(sums)]


def test_keys_with_the_same_secrets_have_other_masks() -> None:
    """Else a device that tells a twin of another's key cancels that one's mask."""
    rng = np.random.default_rng(1)
    model = single(np.ones(LENGTH, np.float32))
    shown = 0
    for number in range(200):
        honest = [rng.bytes(32) for _ in range(2 + number % 6)]
        own, *others = map(public_key, honest)
        group = [own, *others]
        for other in others:
            (alike,) = {secret_in_common(honest[0], k) for k in [other, *twins(other)]}
            assert alike
            # The victim adds one of the masks and subtracts the other.
            across = [k for k in twins(other) if (own < k) != (own < other)]
            group += across[:1]
        hidden = add_masks(model, honest[0], Groups(b"salt", [sorted(group)]), 0)
        shown += hidden.is_possible()
    assert shown == 0


def secret_in_common(secret: bytes, key: bytes) -> bytes:
    private = X25519PrivateKey.from_private_bytes(secret)
    return private.exchange(X25519PublicKey.from_public_bytes(key))


def test_a_task_says_whose_masks_there_are() -> None:
    groups = Groups(b"salt", [KEYS, KEYS[:1]])
    assert Groups.of_config(groups.to_config()) == groups
    assert groups.digest() == Groups(b"other", groups.members).digest()
    assert groups.digest() != Groups(b"salt", [KEYS, KEYS]).digest()


def test_a_device_refuses_groups_that_hide_too_little() -> None:
    secret = next(s for s in SECRETS if public_key(s) == KEYS[0])

    def problem(keys: list[bytes], arrays: int = 2) -> tuple[str, str] | None:
        return Groups(b"", [KEYS, keys]).problem(secret, arrays, 3)

    assert problem(KEYS) is None
    for keys in (KEYS[:2], [*KEYS[:2], KEYS[1], KEYS[1]]):
        few = "a group of 2 devices, fewer than privacy.least_members=3"
        assert problem(keys) == ("refused", few)
    assert problem(KEYS, arrays=3) is not None
    other = problem(KEYS[1:])
    assert other is not None
    assert other[0] == "identity"


@pytest.mark.parametrize(
    ("key", "good"),
    [
        (KEYS[0], True),
        (bytes(32), False),
        (b"\1" + bytes(31), False),
        (b"short", False),
        ((9).to_bytes(32, "little"), True),
        ((9 + 2**255 - 19).to_bytes(32, "little"), False),
    ],
)
def test_keys_with_which_no_secret_can_be_made_are_known(
    key: bytes, good: bool
) -> None:
    assert is_public_key(key) is good


@pytest.mark.parametrize("value", [2.0**31 - 128, -(2.0**31 - 128), 1e-9, 0.0])
def test_every_sum_of_models_within_range_is_possible(value: float) -> None:
    model = np.full(LENGTH, value, np.float32)
    assert merged([single(model)] * 5).is_possible()
    assert single(model).is_possible()


def test_a_sum_that_is_off_by_the_smallest_integer_is_not() -> None:
    total = merged([single(np.ones(LENGTH, np.float32))] * 2)
    total.limbs[0, 3] -= np.iinfo(np.int64).min
    assert not total.is_possible()
