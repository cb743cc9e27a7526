"""Faults of devices, drawn per client and task from the seed tree."""

from __future__ import annotations

import time
from dataclasses import field
from typing import Literal

import numpy as np

from cfl_flower.seeding import generator
from cfl_flower.settings import Fraction, Natural, require, settings
from cfl_flower.types import Answer, ClientId

FAULTS = ("raises", "nan", "shape", "hangs", "drops")
"""The faults that can happen in any task of a client."""


@settings("faults")
class Faults:
    """Faults that are injected into clients, attacks of malicious ones, strictness."""

    raises: Fraction = 0.0
    """Probability, per client and task, that the client raises an error."""
    nan: Fraction = 0.0
    """Probability that it returns NaN."""
    shape: Fraction = 0.0
    """Probability that it returns a wrong shape."""
    hangs: Fraction = 0.0
    """Probability that it never finishes."""
    drops: Fraction = 0.0
    """Probability that it returns nothing."""
    malicious: Fraction = 0.0
    """Share of clients that attack in every round."""
    attackers: list[Natural] = field(default_factory=list)
    """Ids of clients that attack as well."""
    attack: Literal[
        "permute", "random", "flip", "scale", "signflip", "noise", "count", "embedding"
    ] = "permute"
    """Malicious clients permute the coordinates of the representation that they report;
    report a random one; train on flipped labels, and report these; send the opposite of
    ten times their update, or of their update; normal numbers of deviation 1e5 in its
    place; say that they have 2^28 samples; or report numbers of about 1e12."""
    strict: bool = False
    """The first failure of a client ends the run, injected or not."""

    def __post_init__(self) -> None:
        total = sum(getattr(self, name) for name in FAULTS)
        require(total <= 1 + 1e-9, "the sum of faults", total, "at most 1 in all")


def fault_odds(faults: Faults) -> dict[str, float]:
    """Return the probability of each fault that can happen."""
    odds = {name: getattr(faults, name) for name in FAULTS}
    return {name: probability for name, probability in odds.items() if probability}


def draw_fault(
    odds: dict[str, float], seed: int, phase: str, server_round: int, client: ClientId
) -> str | None:
    """Return the name of the fault of a task, or None."""
    if not odds:
        return None
    point = generator(seed, f"fault-{phase}", server_round, client).random()
    for name, probability in odds.items():
        point -= probability
        if point < 0:
            return name
    return None


def inject_fault_before(fault: str | None) -> None:
    """Let a client raise an error or hang before it answers."""
    if fault == "raises":
        raise RuntimeError("injected by faults.raises")
    while fault == "hangs":
        time.sleep(1)


def inject_fault_after(fault: str | None, answer: Answer) -> Answer | None:
    """Spoil a client's answer with NaN or a wrong shape, or drop it."""
    if fault == "drops":
        return None
    if fault == "nan":
        answer.arrays = [np.full_like(array, np.nan) for array in answer.arrays]
        answer.loss = None if answer.loss is None else float("nan")
        answer.metrics |= {
            name: np.full(len(value) // 4, np.nan, np.float32).tobytes()
            for name, value in answer.metrics.items()
            if isinstance(value, bytes)
        }
    if fault == "shape":
        answer.arrays = [array[:-1] for array in answer.arrays]
        answer.metrics |= {
            name: value[:-4]
            for name, value in answer.metrics.items()
            if isinstance(value, bytes)
        }
        if not answer.arrays:
            answer.num_examples = -1
    return answer
