"""Malicious clients: the same share of all clients in every round.

Fielding, section 3.3: a subset of clients permute the coordinates of the representation
that they report. A method sees these attacks as it sees honest drift. Other attacks are
on models, counts and the size of reports; the server sees an answer like any other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cfl_flower.client.faults import Faults
from cfl_flower.clustering.representations import digest
from cfl_flower.privacy.clipping import nearest
from cfl_flower.seeding import generator
from cfl_flower.types import REPORT, Answer, ClientId, IntArray, Vector

CLAIMED = 2**28
"""Number of samples that an attacker claims."""

SIZES = {"scale": -10.0, "signflip": -1.0}
"""Factor by which an attack multiplies an update."""


def malicious_clients(faults: Faults, clients: int, seed: int) -> frozenset[int]:
    """Return the clients that are malicious for the whole run: drawn, and named."""
    order = generator(seed, "malicious").permutation(clients)
    drawn = order[: round(faults.malicious * clients)].tolist()
    return frozenset([*drawn, *faults.attackers])


def spoil_labels(attack: str, labels: IntArray, classes: int) -> IntArray:
    """Return the labels that a client trains on; ``flip`` makes label l L - 1 - l."""
    return classes - 1 - labels if attack == "flip" else labels


def spoil_report(
    attack: str, representation: Vector, seed: int, client: ClientId
) -> Vector:
    """Return the representation that a client reports.

    ``permute`` permutes its coordinates, in the same way in all reports of a client;
    ``random`` is a random distribution, which changes with the true one.
    """
    if attack == "permute":
        order = generator(seed, "attack", 0, client).permutation(len(representation))
        return representation[order]
    if attack == "random":
        rng = generator(seed, f"attack/{digest(representation)}", 0, client)
        return rng.dirichlet(np.ones(len(representation))).astype(np.float32)
    return representation


def spoil_answer(
    attack: str,
    answer: Answer,
    phase: str,
    received: Sequence[Vector],
    rng: np.random.Generator,
) -> None:
    """Spoil what a client answers; of models, their difference to what it received."""
    if phase == "train":
        arrays = [_spoil_model(attack, each, received, rng) for each in answer.arrays]
        answer.arrays = arrays
    if attack == "count":
        _claim_samples(answer, phase)
    if attack == "embedding":
        if phase == "query":
            answer.arrays = [_huge(len(each), rng) for each in answer.arrays]
        data = answer.metrics.get(REPORT)
        if isinstance(data, bytes):
            answer.metrics[REPORT] = _huge(len(data) // 4, rng).tobytes()


def _claim_samples(answer: Answer, phase: str) -> None:
    """Make all of a client's numbers of samples huge: in all, and of each kind."""
    if phase == "train":
        answer.num_examples = CLAIMED
    if "samples" in answer.metrics:
        answer.metrics["samples"] = CLAIMED
    for name in ("classes", "counts"):
        data = answer.metrics.get(name)
        if isinstance(data, bytes):
            counts = CLAIMED * np.sign(np.frombuffer(data, np.float32))
            answer.metrics[name] = counts.astype(np.float32).tobytes()


def _huge(length: int, rng: np.random.Generator) -> Vector:
    return (1e12 * rng.normal(size=length)).astype(np.float32)


def _spoil_model(
    attack: str, model: Vector, received: Sequence[Vector], rng: np.random.Generator
) -> Vector:
    place = nearest(model, received)
    base = np.zeros_like(model) if place is None else received[place]
    if attack == "noise":
        return (base + 1e5 * rng.normal(size=len(model))).astype(np.float32)
    if attack in SIZES:
        return base + np.float32(SIZES[attack]) * (model - base)
    return model
