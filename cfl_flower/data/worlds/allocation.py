"""Samples allocated to clients: pure functions on labels, demands and owners."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from cfl_flower.types import FloatArray, IntArray


class ClientSamples(Protocol):
    """Each client's samples of one pool; a list, or drawn when they are asked for."""

    def __getitem__(self, client: int, /) -> IntArray:
        """Return the indices of one client's samples."""


SamplePair = tuple[ClientSamples, ClientSamples]
"""The indices of each client's samples in both pools."""


def divide_once(
    labels: IntArray, demand: FloatArray, rng: np.random.Generator, minimum: int = 0
) -> list[IntArray]:
    """Allocate every sample to exactly one client, label by label.

    Of ``labels``, shape (n,), each is shared in proportion to its column of ``demand``,
    shape (clients, L); nobody gets any if that is 0. ``minimum`` samples come first for
    each client with a demand for a label; fewer where they would take more than half.
    Returns each client's indices, ascending.
    """
    allocated: list[list[IntArray]] = [[] for _ in demand]
    for label in range(demand.shape[1]):
        shuffled = rng.permutation(np.flatnonzero(labels == label))
        # Clients in a new order for each label: roundings favour nobody twice.
        order = rng.permutation(len(demand))
        wanted = demand[order, label]
        if not wanted.any():
            continue
        first = np.cumsum(wanted > 0)
        least = min(minimum, len(shuffled) // 2 // max(1, int(first[-1])))
        shares = np.cumsum(wanted)
        rest = len(shuffled) - least * first[-1]
        cuts = least * first + np.rint(shares / shares[-1] * rest).astype(int)
        for client, part in zip(order, np.split(shuffled, cuts[:-1]), strict=True):
            allocated[client].append(part)
    none = np.zeros(0, np.int64)
    return [np.sort(np.concatenate([none, *own])) for own in allocated]


def draw(
    labels: IntArray, demand: FloatArray, counts: IntArray, rng: np.random.Generator
) -> list[IntArray]:
    """Draw ``counts[i]`` samples for client i with replacement, by its distribution.

    ``labels`` has the shape (n,), ``demand`` (clients, L), ``counts`` (clients,).
    Labels without a sample are drawn by nobody. Returns each client's indices.
    """
    order = np.argsort(labels, kind="stable")
    sizes = np.bincount(labels, minlength=demand.shape[1])
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    present = np.where(sizes > 0, demand, 0.0)
    present[~present.any(axis=1)] = sizes > 0
    allocated = []
    for limits, count in zip(np.cumsum(present, axis=1), counts, strict=True):
        point = rng.random(count) * limits[-1]
        wanted = np.searchsorted(limits[:-1], point, side="right")
        offsets = (rng.random(count) * sizes[wanted]).astype(np.int64)
        allocated.append(np.sort(order[starts[wanted] + offsets]))
    return allocated


def samples_of_owners(owners: IntArray, chosen: IntArray) -> list[IntArray]:
    """Return the indices of the samples of each of some owners; shape (n,) and (m,)."""
    order = np.argsort(owners, kind="stable")
    starts = np.searchsorted(owners[order], chosen)
    ends = np.searchsorted(owners[order], chosen, side="right")
    return [order[start:end] for start, end in zip(starts, ends, strict=True)]
