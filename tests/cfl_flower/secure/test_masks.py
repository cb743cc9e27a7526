"""Masks cancel exactly in the sum of all, and hide what anything less is made of."""

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from cfl_flower.communication.exact_sum import ExactSum
from cfl_flower.communication.identity import (
    KEY_BYTES,
    any_in_common,
    is_public_key,
    public_key,
)
from cfl_flower.secure.groups import (
    Groups,
    Revealed,
    fewest_senders,
    from_text,
    share_threshold,
    to_text,
)
from cfl_flower.secure.masks import GroupMember, own_mask, stream, unmask
from cfl_flower.types import Vector

SECRETS = [bytes([place] * 32) for place in range(1, 5)]
KEYS = sorted(map(public_key, SECRETS))
FIRST = min(SECRETS, key=public_key)
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


class Group:
    """Devices that hide models in one group, and what they send."""

    def __init__(self, models: list[Vector], salt: bytes = b"salt") -> None:
        secrets = [bytes([place + 1] * 32) for place in range(len(models))]
        secrets.sort(key=public_key)
        groups = Groups(salt, [[public_key(secret) for secret in secrets]])
        self.members = [GroupMember(secret, groups, 0) for secret in secrets]
        self.plain = [single(model, 1 + place) for place, model in enumerate(models)]
        self.seeds = [bytes([place] * 16) for place in range(len(models))]
        both = list(zip(self.members, self.seeds, strict=True))
        self.sealed = [member.share_out(seed) for member, seed in both]
        self.hidden = [
            member.hide(total, seed)
            for (member, seed), total in zip(both, self.plain, strict=True)
        ]

    def reveal(self, place: int, senders: list[int]) -> Revealed:
        return self.members[place].reveal(
            senders, [self.sealed[sender][place] for sender in senders]
        )

    def opened(self, senders: list[int], silent: int = 0) -> ExactSum | None:
        """Return what the server finds if the first few senders reveal nothing."""
        told = {
            place: self.reveal(place, senders) if number >= silent else None
            for number, place in enumerate(senders)
        }
        total = merged([self.hidden[sender] for sender in senders])
        return unmask(total, len(self.members), told)


def models_of(count: int, seed: int = 0) -> list[Vector]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=LENGTH).astype(np.float32) for _ in range(count)]


@given(st.integers(2, 9), st.data(), st.integers(0, 2**32 - 1))
@settings(max_examples=40)
def test_the_sum_of_those_that_sent_opens_bit_for_bit(count, data, seed):
    group = Group(models_of(count, seed))
    fewest = fewest_senders(count, 2)
    some = st.lists(st.integers(0, count - 1), min_size=fewest, unique=True)
    senders = sorted(data.draw(some))
    opened = group.opened(senders)
    plain = merged([group.plain[sender] for sender in senders])
    assert opened.is_possible()
    assert (opened.limbs == plain.limbs).all()
    assert (opened.terms, opened.weight) == (plain.terms, plain.weight)


def test_one_that_is_lost_between_sending_and_revealing_costs_nothing():
    group = Group(models_of(6))
    everyone = list(range(6))
    opened = group.opened(everyone, silent=1)
    assert (opened.limbs == merged(group.plain).limbs).all()
    assert group.opened(everyone, silent=2) is None, "less than the threshold"
    # The masks of a lost one are known to its partners alone.
    assert group.opened([0, 1, 2, 3, 4], silent=1) is None


def test_who_is_lost_stays_unreadable_if_its_result_comes_late():
    group = Group(models_of(6))
    senders = [0, 1, 2, 3, 4]
    late = group.hidden[5]
    limbs = late.limbs.copy()
    for place in senders:
        # Its masks with all others are revealed, and its own is not.
        (seed,) = group.reveal(place, senders).seeds
        limbs += stream(seed, LENGTH)
    assert not ExactSum(limbs, late.terms, late.weight).is_possible()
    limbs -= own_mask(group.seeds[5], LENGTH)
    assert ExactSum(limbs, late.terms, late.weight).is_possible()


def test_only_the_device_that_it_is_for_reads_a_share():
    group = Group(models_of(4))
    for reader in range(1, 4):
        told = group.members[reader].reveal([0], [group.sealed[0][(reader + 1) % 4]])
        assert told.shares == [b""]
        (share,) = group.reveal(reader, [0]).shares
        assert len(share) == (16 if reader else 0)


@pytest.mark.parametrize(
    ("members", "least", "fewest"),
    [(2, 2, 2), (3, 2, 3), (4, 3, 3), (6, 3, 5), (6, 6, 6), (30, 3, 21), (100, 3, 67)],
)
def test_fewer_than_a_third_may_be_lost(members, least, fewest):
    assert fewest_senders(members, least) == fewest
    assert share_threshold(members) == fewest_senders(members, 0) - 1


@given(st.integers(2, 10), st.data())
@settings(max_examples=60)
def test_devices_of_one_group_never_sign_enough_for_two_lists(count, data):
    """Not even with as many that sign all lists as `fewest_senders` leaves in doubt."""
    group = Group(models_of(count))
    fewest = fewest_senders(count, 0)
    lists = st.lists(st.integers(0, count - 1), min_size=fewest, unique=True).map(
        sorted
    )
    views = [data.draw(lists), data.draw(lists)]
    # Who colludes signs whatever it is asked to, an honest device one list.
    colluding = data.draw(st.integers(0, max(0, 2 * fewest - count - 1)))
    chosen = [data.draw(st.sampled_from([0, 1])) for _ in range(count)]
    enough = 0
    for number, senders in enumerate(views):
        signed = [
            group.members[place].sign(senders)
            if place < colluding or chosen[place] == number
            else b""
            for place in senders
        ]
        enough += group.members[0].has_threshold(senders, signed)
    assert enough <= 1 or views[0] == views[1]


@pytest.mark.parametrize("count", range(3, 11))
def test_a_list_that_all_but_the_lost_have_signed_is_enough(count):
    group = Group(models_of(count))
    fewest = fewest_senders(count, 0)
    senders = list(range(fewest))
    signed = [group.members[place].sign(senders) for place in senders]
    reader = group.members[0]
    assert reader.has_threshold(senders, signed)
    assert not reader.has_threshold(senders, [*signed[:-1], b""])
    assert not reader.has_threshold(senders, [*signed[:-1], signed[0]])
    everyone = list(range(count))
    told = [*signed, *[b""] * (count - fewest)]
    if fewest < count:
        assert not reader.has_threshold(everyone, told), "they signed another list"


@pytest.mark.parametrize(
    ("salt", "array", "members"), [(b"other", 0, 4), (b"salt", 1, 4), (b"salt", 0, 3)]
)
def test_a_signature_is_of_one_salt_array_and_group(salt, array, members):
    groups = Groups(b"salt", [KEYS, KEYS])
    signature = GroupMember(FIRST, groups, 0).sign([0, 1, 2])
    assert groups.is_signed(0, [0, 1, 2], 0, signature)
    assert not groups.is_signed(0, [0, 1, 2], 1, signature)
    other = Groups(salt, [KEYS[:members], KEYS[:members]])
    assert not other.is_signed(array, [0, 1, 2], 0, signature)


def test_keys_with_a_half_in_common_are_not_two_devices():
    one, two, three, four = KEYS
    assert not any_in_common(KEYS)
    copies = [one[:KEY_BYTES] + two[KEY_BYTES:], three[:KEY_BYTES] + one[KEY_BYTES:]]
    for copied in copies:
        assert any_in_common([one, copied])
        keys = sorted({one, three, four, copied})
        told = Groups(b"", [keys]).problem(FIRST, 1, 3)
        assert told == ("refused", "a group has a key twice, or is not sorted")


def test_masks_of_another_plan_do_not_cancel():
    group = Group(models_of(4))
    own = sum(own_mask(seed, LENGTH) for seed in group.seeds)
    other = Group(models_of(4), salt=b"other").hidden[0]
    mixed = merged([other, *group.hidden[1:]])
    assert not ExactSum(mixed.limbs - own, 4, 10).is_possible()


def test_masks_look_random_whatever_is_behind_them():
    groups = Groups(b"salt", [KEYS, KEYS])
    zeros = single(np.zeros(4096, np.float32))
    one, two = (
        GroupMember(SECRETS[0], groups, array).hide(zeros, bytes(16)).limbs
        for array in (0, 1)
    )
    for limbs in (one, two, one - two):
        counts = np.bincount(np.ascontiguousarray(limbs).view(np.uint8).ravel())
        # Of 65,536 bytes 256 of each value, with a standard deviation of 16.
        assert abs(counts - 256).max() < 6 * 16


def test_a_mask_is_the_same_on_any_machine():
    group = Group([np.zeros(2, np.float32)] * 2)
    mask = group.hidden[0].limbs - group.plain[0].limbs
    # As it was when this was written: X25519, HKDF with SHA-256, ChaCha20.
    assert mask.tolist() == [
        [3005718019499572236, 5871896517157687006],
        [-6754719387870888631, -3382734857919990222],
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
    square = u * (u * u + CURVE * u + 1) % FIELD
    v = pow(square, (FIELD + 3) // 8, FIELD)
    v = v if v * v % FIELD == square else v * pow(2, (FIELD - 1) // 4, FIELD) % FIELD
    assert v * v % FIELD == square
    return v


def twins(key: bytes) -> list[bytes]:
    """Return a key plus each point of low order: seven that share all its secrets."""
    u = int.from_bytes(key[:KEY_BYTES], "little")
    sums = set()
    for low in LOW_ORDER:
        for v in (root(u), -root(u)):
            slope = (v - root(low)) * pow(u - low, -1, FIELD)
            sums.add((slope * slope - CURVE - u - low) % FIELD)
    signer = key[KEY_BYTES:]
    return [each.to_bytes(32, "little") + signer for each in sorted(sums)]


def test_keys_with_the_same_secrets_have_other_masks():
    """Else a device that tells a twin of another's key cancels that one's mask."""
    rng = np.random.default_rng(1)
    model = single(np.ones(LENGTH, np.float32))
    shown = 0
    for number in range(60):
        honest = [rng.bytes(32) for _ in range(2 + number % 6)]
        private = X25519PrivateKey.from_private_bytes(honest[0])
        own, *others = map(public_key, honest)
        group = [own, *others]
        for other in others:
            known = [k[:KEY_BYTES] for k in [other, *twins(other)]]
            others_half = map(X25519PublicKey.from_public_bytes, known)
            assert len({*map(private.exchange, others_half)}) == 1
            # The victim adds one of the masks and subtracts the other.
            across = [k for k in twins(other) if (own < k) != (own < other)]
            group += across[:1]
        groups = Groups(b"salt", [sorted(group)])
        hidden = GroupMember(honest[0], groups, 0).hide(model, bytes(16))
        limbs = hidden.limbs - own_mask(bytes(16), LENGTH)
        shown += ExactSum(limbs, hidden.terms, hidden.weight).is_possible()
    assert shown == 0


def test_a_task_says_whose_masks_there_are():
    groups = Groups(b"salt", [KEYS, KEYS[:1]])
    assert from_text(Groups, to_text(groups)) == groups
    assert groups.digest() == Groups(b"other", groups.members).digest()
    assert groups.digest() != Groups(b"salt", [KEYS, KEYS]).digest()


def test_a_device_refuses_groups_that_hide_too_little():

    def problem(keys: list[bytes], arrays: int = 2) -> tuple[str, str] | None:
        return Groups(b"", [KEYS, keys]).problem(FIRST, arrays, 3)

    assert problem(KEYS) is None
    for keys in (KEYS[:2], [*KEYS[:2], KEYS[1], KEYS[1]]):
        few = "a group of 2 devices, fewer than privacy.least_members=3"
        assert problem(keys) == ("refused", few)
    for keys in ([*KEYS, KEYS[3]], KEYS[::-1]):
        assert problem(keys) == ("refused", "a group has a key twice, or is not sorted")
    assert problem(KEYS, arrays=3) is not None
    other = problem(KEYS[1:])
    assert other[0] == "identity"


SIGNER = KEYS[0][KEY_BYTES:]


@pytest.mark.parametrize(
    ("key", "good"),
    [
        (KEYS[0], True),
        (bytes(32) + SIGNER, False),
        (b"\1" + bytes(31) + SIGNER, False),
        (b"short", False),
        (KEYS[0][:KEY_BYTES], False),
        (KEYS[0] + b"x", False),
        ((9).to_bytes(32, "little") + SIGNER, True),
        ((9 + 2**255 - 19).to_bytes(32, "little") + SIGNER, False),
    ],
)
def test_keys_with_which_no_secret_can_be_made_are_known(key, good):
    assert is_public_key(key) is good
