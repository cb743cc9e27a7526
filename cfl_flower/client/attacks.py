"""Malicious clients: the same share of all clients in every round.

Fielding, section 3.3: a subset of clients permute the coordinates of the representation
that they report. A method sees these attacks as it sees honest drift.
"""

from __future__ import annotations

import numpy as np

from cfl_flower.client.faults import Faults
from cfl_flower.clustering.representations import digest
from cfl_flower.seeding import generator
from cfl_flower.types import ClientId, IntArray, Vector


def malicious_clients(faults: Faults, clients: int, seed: int) -> frozenset[int]:
    """Draw the clients that are malicious for the whole run."""
    order = generator(seed, "malicious").permutation(clients)
    return frozenset(order[: round(faults.malicious * clients)].tolist())


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
