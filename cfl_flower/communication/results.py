"""What comes back from the clients in one phase of a round."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy

from cfl_flower.communication.exact_sum import ExactSum
from cfl_flower.types import (
    ClientId,
    Failure,
    Result,
    Scalar,
    Vector,
    Version,
    client_order,
)

LIMB_BYTES = 16
"""Length of a number in a sum, or behind a mask, instead of 4."""


class Results(list[Result]):
    """The valid results of a phase, in client-id order, whatever the order of arrival.

    The failures are in the same order.
    """

    def __init__(self, results: Iterable[Result] = ()) -> None:
        super().__init__(results)
        self.sums: dict[Version, ExactSum] = {}
        """Sums of arrays, by (array of a reply, model of the plan), if the plan has a
        `SumSpec`; the results then have no arrays."""
        self.shares: dict[ClientId, dict[int, list[bytes]]] = {}
        """Clients whose results are in masked sums, with the shares that real devices
        encrypted for others of their groups, by the array."""
        self.failures: list[Failure] = []

    def with_results(self, results: Iterable[Result]) -> Results:
        """Return others in the place of these, with all else that came back."""
        found = copy(self)
        found[:] = results
        return found

    def add(self, more: Results) -> None:
        """Take in those of another part of the phase, which are not sorted in."""
        self.extend(more)
        self.shares |= more.shares
        self.failures += more.failures
        for version, each in more.sums.items():
            if version in self.sums:
                self.sums[version].merge(each)
            else:
                self.sums[version] = each

    def sort_by_client(self) -> None:
        """Sort results and failures."""
        self.sort(key=lambda result: client_order(result.client))
        self.failures.sort(key=lambda failure: client_order(failure.client))


def payload_bytes(arrays: Iterable[Vector], metrics: dict[str, Scalar]) -> int:
    """Return the bytes of models and representations, a method's cost on the wire."""
    told = sum(len(value) for value in metrics.values() if isinstance(value, bytes))
    return told + sum(array.nbytes for array in arrays)
