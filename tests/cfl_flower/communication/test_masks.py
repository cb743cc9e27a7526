"""Masks cancel to the bit in the sum of all, and hide what anything less is made of."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfl_flower.communication.exact_sum import ExactSum
from cfl_flower.communication.masks import Groups, add_masks, public_key
from cfl_flower.types import ClientId, Vector

CLIENTS: list[ClientId] = [3, 11, "site-a", "site-b"]
SECRETS = {client: os.urandom(32) for client in CLIENTS}
KEYS = {client: public_key(secret) for client, secret in SECRETS.items()}
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


def masked(client: ClientId, total: ExactSum, groups: Groups) -> ExactSum:
    return add_masks(total, client, SECRETS[client], groups, 0)


@given(st.integers(2, 4), st.integers(0, 2**32 - 1))
def test_all_masks_of_a_group_cancel_to_the_bit(members: int, seed: int) -> None:
    rng, some = np.random.default_rng(seed), CLIENTS[:members]
    groups = Groups(b"salt", [{client: KEYS[client] for client in some}])
    parts = [
        single(rng.normal(size=LENGTH).astype(np.float32), int(rng.integers(1, 90)))
        for _ in some
    ]
    hidden = [masked(c, part, groups) for c, part in zip(some, parts, strict=True)]
    plain, opened = merged(parts), merged(hidden)
    assert opened.is_possible()
    assert opened.mean().tolist() == plain.mean().tolist()
    assert (opened.limbs == plain.limbs).all()


def test_anything_less_than_all_is_no_sum_of_models() -> None:
    groups = Groups(b"salt", [KEYS])
    ones = np.ones(LENGTH, np.float32)
    hidden = [masked(client, single(ones), groups) for client in CLIENTS]
    assert merged(hidden).is_possible()
    for left_out in range(4):
        rest = [each for place, each in enumerate(hidden) if place != left_out]
        assert not merged(rest).is_possible()
    # One with masks of another plan, too.
    other = masked(CLIENTS[0], single(ones), Groups(b"other", [KEYS]))
    assert not merged([other, *hidden[1:]]).is_possible()


def test_masks_look_random_whatever_is_behind_them() -> None:
    groups = Groups(b"salt", [KEYS, KEYS])
    zeros = single(np.zeros(4096, np.float32))
    (one, two) = (add_masks(zeros, 3, SECRETS[3], groups, a).limbs for a in (0, 1))
    for limbs in (one, two, one - two):
        counts = np.bincount(np.ascontiguousarray(limbs).view(np.uint8).ravel())
        # Of 65,536 bytes 256 of each value, with a standard deviation of 16.
        assert abs(counts - 256).max() < 6 * 16


def test_a_task_says_whose_masks_there_are() -> None:
    groups = Groups(b"salt", [KEYS, {3: KEYS[3]}])
    assert Groups.of_config(groups.to_config()) == groups


def test_a_device_refuses_groups_that_hide_too_little() -> None:
    def problem(keys: dict[ClientId, bytes], least: int = 3) -> str:
        return Groups(b"", [KEYS, keys]).problem(3, SECRETS[3], least)

    assert problem(KEYS) == ""
    few = {client: KEYS[client] for client in CLIENTS[:2]}
    assert problem(few) == "a group of 2, fewer than privacy.least_members=3"
    # One party with several names.
    alike = {3: KEYS[3], 11: KEYS[11], "site-a": KEYS[11], "site-b": KEYS[11]}
    assert problem(alike) == "a group of 2, fewer than privacy.least_members=3"
    assert "another key" in problem(KEYS | {3: KEYS[11]})
    assert "another key" in problem({c: k for c, k in KEYS.items() if c != 3})


@pytest.mark.parametrize("value", [2.0**31 - 128, -(2.0**31 - 128), 1e-9, 0.0])
def test_every_sum_of_models_within_range_is_possible(value: float) -> None:
    model = np.full(LENGTH, value, np.float32)
    assert merged([single(model)] * 5).is_possible()
    assert single(model).is_possible()
