"""A budget for each client: to how many re-clusterings its reports may lead.

A client that says in every round that its data are others would otherwise cluster all
clients anew in every round.
"""

from __future__ import annotations

from collections.abc import Sequence

from cfl_flower.communication.results import Results
from cfl_flower.engine.context import RoundContext
from cfl_flower.engine.delivery import without_report
from cfl_flower.engine.stages.stage import Stage
from cfl_flower.runs.record import ClientRow
from cfl_flower.types import REPORT, ClientId, Plan

MOST = 3.0
"""Re-clusterings in a row that the reports of a few clients may lead to."""

REGAINED = 0.2
"""Re-clusterings that each of them may lead to again after another round."""


class ReportBudget(Stage):
    """Leaves out the reports of clients that led to too many re-clusterings.

    If more than half of the clients report in a round, they all drift, and it is on
    nobody's account.
    """

    def __init__(self) -> None:
        self._reporters: list[ClientId] = []

    def receive(self, context: RoundContext, plan: Plan, results: Results) -> Results:
        """Leave out reports beyond the budget; their tests count."""
        if context.phase != "evaluate":
            return results
        led = context.state.led
        reporters = [result.client for result in results if REPORT in result.metrics]
        resting = [each for each in reporters if led.get(each, 0.0) > MOST - 1]
        self._reporters = [each for each in reporters if each not in resting]
        if not resting:
            return results
        context.record.measures["resting"] = resting
        return results.with_results(
            without_report(result) if result.client in resting else result
            for result in results
        )

    def close(self, context: RoundContext, rows: Sequence[ClientRow]) -> None:
        """Charge a re-clustering to the few who reported."""
        state = context.state
        left = {c: n - REGAINED for c, n in state.led.items() if n > REGAINED}
        few = 2 * len(self._reporters) <= len(state.clients)
        if context.record.reclustered and few:
            left |= {c: left.get(c, 0.0) + 1 for c in self._reporters}
        state.led = left
        self._reporters = []
