"""What comes back from the clients in one phase of a round."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy

from cfl_flower.communication.exact_sum import ExactSum
from cfl_flower.types import ClientId, Failure, Result, Scalar, Vector, client_order


class Results(list[Result]):
    """The valid results of a phase, in client-id order, whatever the order of arrival.

    The failures are in the same order.
    """

    def __init__(self, results: Iterable[Result] = ()) -> None:
        super().__init__(results)
        self.sums: dict[tuple[int, int], ExactSum] = {}
        """What arrays were added up to, by (array of a reply, model of the plan), if
        the plan has a `SumSpec`; the results then have no arrays."""
        self.shares: dict[ClientId, dict[int, list[bytes]]] = {}
        """Whose results are in masked sums, with what real devices encrypted for others
        of their groups, by the array."""
        self.failures: list[Failure] = []
        self.bytes_up = 0
        self.bytes_down = 0
        """Models and representations, as if every client were a device of its own."""
        self.traffic: dict[ClientId, int] = {}
        """Bytes of each client, both ways; without the models of a test."""

    def with_results(self, results: Iterable[Result]) -> Results:
        """Return others in the place of these, with all else that came back."""
        found = copy(self)
        found[:] = results
        return found

    def add(self, more: Results) -> None:
        """Take in those of another part of the phase, without their sums."""
        self.extend(more)
        self.failures += more.failures
        self.bytes_up += more.bytes_up
        self.bytes_down += more.bytes_down
        self.traffic |= more.traffic
        self.sort_by_client()

    def sort_by_client(self) -> None:
        """Sort results and failures."""
        self.sort(key=lambda result: client_order(result.client))
        self.failures.sort(key=lambda failure: client_order(failure.client))


def payload_bytes(arrays: Iterable[Vector], metrics: dict[str, Scalar]) -> int:
    """Return the bytes of models and representations, a method's cost on the wire."""
    representations = (v for v in metrics.values() if isinstance(v, bytes))
    return sum(a.nbytes for a in arrays) + sum(len(v) for v in representations)
