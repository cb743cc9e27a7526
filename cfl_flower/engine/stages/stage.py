"""What is done to every phase of a round, whatever the method."""

from __future__ import annotations

from collections.abc import Sequence

from cfl_flower.communication.results import Results
from cfl_flower.engine.context import RoundContext
from cfl_flower.runs.record import ClientRow
from cfl_flower.types import Plan


class Stage:
    """A step between the method and its clients, on the way out and on the way back.

    The order of all stages is in `cfl_flower.engine.stages`: a plan passes them from
    first to last, results from last to first. `RoundContext.phase` says whether it is
    a plan of queries, of training or of tests.
    """

    def open(self, context: RoundContext) -> None:
        """Begin a round, before anybody is chosen for training."""

    def plan(self, context: RoundContext, plan: Plan) -> Plan:
        """Return the plan as it goes on."""
        return plan

    def receive(self, context: RoundContext, plan: Plan, results: Results) -> Results:
        """Return the results as they go on to the method.

        ``plan`` is the one that `plan` was given; `RoundContext.sent` is what all
        stages made of it, with the sums that a stage below has made since. Results of
        training have been read by the method; those of tests and queries are not yet.
        """
        return results

    def close(self, context: RoundContext, rows: Sequence[ClientRow]) -> None:
        """End a round, when all of it is known but how long it took."""
