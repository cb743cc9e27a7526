"""What comes back from the clients in one phase of a round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy

from cfl_flower.communication.exact_sum import ExactSum
from cfl_flower.types import (
    ClientId,
    Failure,
    Plan,
    Result,
    Scalar,
    Task,
    Vector,
    Version,
    client_order,
)

LIMB_BYTES = 16
"""Of a number in a sum, or behind a mask, instead of 4."""


class Results(list[Result]):
    """The valid results of a phase, in client-id order, whatever the order of arrival.

    The failures are in the same order.
    """

    def __init__(self, results: Iterable[Result] = ()) -> None:
        super().__init__(results)
        self.sums: dict[Version, ExactSum] = {}
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
        """Take in those of another part of the phase, which are not sorted in."""
        self.extend(more)
        self.merge_sums(more.sums)
        self.shares |= more.shares
        self.failures += more.failures
        self.bytes_up += more.bytes_up
        self.bytes_down += more.bytes_down
        self.traffic |= more.traffic

    def merge_sums(self, sums: Mapping[Version, ExactSum]) -> None:
        """Add sums to those of the same versions."""
        for version, each in sums.items():
            if version in self.sums:
                self.sums[version].merge(each)
            else:
                self.sums[version] = each

    def note_bytes(self, phase: str, plan: Plan, tasks: Iterable[Task]) -> None:
        """Count what some of a plan's tasks sent, as if each client were a device."""
        masked = plan.sum_spec is not None and plan.sum_spec.masked
        reply = (LIMB_BYTES if masked else 4) * sum(plan.reply)
        metrics = {result.client: result.metrics for result in self}
        for task in tasks:
            models = [plan.models[index] for index in task.models]
            down = payload_bytes(models, task.config)
            self.bytes_down += down
            # A model that is sent only to be tested is part of the measurement.
            self.traffic[task.client] = down if phase != "evaluate" else 0
            if task.client in metrics:
                up = reply + payload_bytes([], metrics[task.client])
                self.bytes_up += up
                self.traffic[task.client] += up

    def sort_by_client(self) -> None:
        """Sort results and failures."""
        self.sort(key=lambda result: client_order(result.client))
        self.failures.sort(key=lambda failure: client_order(failure.client))


def payload_bytes(arrays: Iterable[Vector], metrics: dict[str, Scalar]) -> int:
    """Return the bytes of models and representations, a method's cost on the wire."""
    told = sum(len(value) for value in metrics.values() if isinstance(value, bytes))
    return told + sum(array.nbytes for array in arrays)
