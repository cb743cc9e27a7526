"""More participants than are wanted, of which the first to finish count.

`devices.over_commitment`, as in Oort and FedScale.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cfl_flower.communication.results import Results
from cfl_flower.engine.context import RoundContext
from cfl_flower.engine.delivery import Delivery
from cfl_flower.engine.participants import Participants
from cfl_flower.engine.simulated_devices import first_to_finish
from cfl_flower.engine.stages.stage import Stage
from cfl_flower.types import Plan


class OverCommitment(Stage):
    """Leaves out those who finished after as many as were wanted."""

    def __init__(self, participants: Participants, delivery: Delivery) -> None:
        self._participants = participants
        self._delivery = delivery

    def plan(self, context: RoundContext, plan: Plan) -> Plan:
        """Let results come one by one: who is late is known when all have finished."""
        return replace(plan, sum_spec=None) if self._applies(context) else plan

    def receive(self, context: RoundContext, plan: Plan, results: Results) -> Results:
        """Keep the first; add them up if that was planned."""
        if not self._applies(context):
            return results
        if context.fleet.simulated and self._participants.strata:
            results = self._first(context, results)
        if plan.sum_spec is not None:
            results = self._delivery.add_up(plan, results)
        return results

    def _applies(self, context: RoundContext) -> bool:
        return context.phase == "train" and context.config.devices.over_commitment > 1

    def _first(self, context: RoundContext, results: Results) -> Results:
        """Leave out who finished after as many as were wanted of each stratum."""
        drawn = self._participants
        seconds = context.clock.seconds([result.client for result in results])
        strata = [drawn.strata[result.client] for result in results]
        kept = first_to_finish(seconds, np.array(strata, np.int64), drawn.shares)
        rows = list(zip(results, seconds.tolist(), kept, strict=True))
        context.late = {each.client: taken for each, taken, ok in rows if not ok}
        context.record.measures["late"] = len(context.late)
        return results.with_results([each for each, _, ok in rows if ok])
