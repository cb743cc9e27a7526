from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cfl_flower.seeding import generator, key, seed_torch, torch_seed

DRAW = (
    "from cfl_flower.seeding import generator, torch_seed;"
    "print(generator(3, 'batches', 2, 'site-a').integers(2**62),"
    " torch_seed(3, 'torch', 2, 'site-a'))"
)


@pytest.mark.slow
def test_another_process_draws_the_same_numbers() -> None:
    shown = [
        subprocess.check_output(
            [sys.executable, "-c", DRAW], env={"PYTHONHASHSEED": seed}, text=True
        )
        for seed in ("1", "2")
    ]
    here = generator(3, "batches", 2, "site-a").integers(2**62)
    assert shown[0] == shown[1] == f"{here} {torch_seed(3, 'torch', 2, 'site-a')}\n"


@pytest.mark.parametrize(
    "other",
    [(1, "batches", 3, 4), (0, "deal", 3, 4), (0, "batches", 2, 4), (0, "batches", 3)],
)
def test_draws_depend_on_seed_purpose_round_and_client(other: tuple) -> None:
    here = generator(0, "batches", 3, 4).random(4)
    assert not np.array_equal(here, generator(*other).random(4))
    assert torch_seed(0, "batches", 3, 4) != torch_seed(*other)


def test_a_draw_does_not_depend_on_earlier_draws() -> None:
    before = generator(0, "batches", 1, 1).random(3)
    generator(0, "batches", 1, 2).random(1000)
    np.random.default_rng().random()
    assert np.array_equal(generator(0, "batches", 1, 1).random(3), before)


def test_a_client_named_like_a_number_is_another_client() -> None:
    assert key(7) != key("7")
    assert torch_seed(0, "torch", 1, 7) != torch_seed(0, "torch", 1, "7")


def test_torch_is_seeded_as_by_its_own_function() -> None:
    seed_torch(5)
    ours = torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(ours, torch.rand(3))


@given(st.integers(0, 2**31), st.text(max_size=20), st.integers(0, 10**6))
def test_torch_accepts_every_seed(seed: int, purpose: str, round: int) -> None:
    assert 0 <= torch_seed(seed, purpose, round, "site-a") < 2**63


def test_many_names_have_distinct_keys() -> None:
    # Half of 64 bits would collide here with near certainty.
    assert len({key(f"site-{i}") for i in range(200_000)}) == 200_000
