"""Digits, divided among clients by groups of labels, which are redrawn at each drift.

A client has mostly the digits of one group. At a drift the ten digits are put into five
new groups, of which each client draws one: its labels change, and with them who is like
it.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor

GROUPS = 5
"""Groups of two digits each."""

OWN = 0.9
"""Share of a client's samples that are of its group."""

SIZES = {"train": 36, "test": 20}
"""Samples of a client."""


@cache
def pools() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the inputs, (n, 64), and labels, (n,), to train and to test on."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    tested = np.arange(len(y)) % 5 == 0
    x = (x / 16).astype(np.float32)
    return {"train": (x[~tested], y[~tested]), "test": (x[tested], y[tested])}


def period_of(server_round: int, drifts: list[int]) -> int:
    """Return how many drifts there were before a round's training."""
    return sum(server_round >= drift for drift in drifts)


def group_of(client: int, period: int, seed: int) -> np.ndarray:
    """Return the digits of a client's group in a period."""
    rng = np.random.default_rng([seed, period])
    digits = rng.permutation(10).reshape(GROUPS, -1)
    place = rng.integers(GROUPS, size=client + 1)[client]
    return np.asarray(digits[place])


def load(
    client: int, period: int, seed: int, part: str = "train"
) -> tuple[Tensor, Tensor]:
    """Return a client's samples in a period: inputs, (n, 64), and labels, (n,)."""
    x, y = pools()[part]
    own = np.isin(y, group_of(client, period, seed))
    # A label of the group is as likely as any other one of it.
    chances = np.where(own, OWN / own.sum(), (1 - OWN) / (~own).sum())
    rng = np.random.default_rng([seed, period, client, len(part)])
    rows = rng.choice(len(y), SIZES[part], replace=False, p=chances)
    return torch.from_numpy(x[rows]), torch.from_numpy(y[rows])
