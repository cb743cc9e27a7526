"""Bounds: hand-computed cases, and a bound that finds the quantile it is to follow."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfl_flower.privacy.clipping import (
    adapted_bound,
    count_noise,
    noise_beside_count,
)


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.9])
def test_the_bound_comes_to_the_quantile_of_the_lengths(quantile: float) -> None:
    lengths = np.random.default_rng(0).lognormal(1.0, 0.5, 5000)
    bound = 0.1  # The paper's start, far below.
    for _ in range(200):
        share = float(np.mean(lengths <= bound))
        bound = adapted_bound(bound, share, quantile, 0.2)
    assert bound == pytest.approx(np.quantile(lengths, quantile), rel=0.01)


def test_the_noise_on_the_count_is_the_papers_or_that_on_updates() -> None:
    assert count_noise(100, 1.0) == 5.0
    assert count_noise(10, 1.5) == 1.5


@given(
    st.integers(1, 10_000),
    st.floats(0.01, 100),
    st.integers(1, 3),
)
def test_count_and_updates_cost_together_what_updates_alone_would(
    participants: int, multiplier: float, models: int
) -> None:
    spread = count_noise(participants, multiplier)
    noise = noise_beside_count(multiplier, spread, models)
    # Little more noise: at most that of 4/3 of the cost.
    assert multiplier < noise <= multiplier * math.sqrt(4 / 3) * (1 + 1e-9)
    together = models * noise**-2 + (2 * spread) ** -2
    assert together == pytest.approx(models * multiplier**-2)
