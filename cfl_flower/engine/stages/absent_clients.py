"""Clients of a simulation that have not joined yet, or have left.

`devices.joins` and `devices.leaves`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cfl_flower.engine.context import RoundContext
from cfl_flower.engine.presence import Presence
from cfl_flower.engine.stages.stage import Stage
from cfl_flower.runs.record import ClientRow
from cfl_flower.types import BoolArray, Plan


class AbsentClients(Stage):
    """Asks nothing of who is not there, and scores who is tested for the first time."""

    def __init__(self, presence: Presence) -> None:
        self._presence = presence

    def among(self, context: RoundContext) -> BoolArray:
        """Return which clients of the state are there, in its order."""
        there = self._presence.there(context.number)
        return there[np.array(context.state.clients, np.int64)]

    def plan(self, context: RoundContext, plan: Plan) -> Plan:
        """Leave out the tasks of who is not there."""
        there = self._presence.there(context.number)
        tasks = [task for task in plan.tasks if there[int(task.client)]]
        return replace(plan, tasks=tasks)

    def close(self, context: RoundContext, rows: Sequence[ClientRow]) -> None:
        """Note how many are there, and the accuracy of those who have just joined."""
        measures = context.record.measures
        measures["present"] = int(self._presence.there(context.number).sum())
        every = context.config.system.evaluate_every
        tested_before = (context.number - 1) // every * every
        joined = self._presence.first
        new = [row for row in rows if max(tested_before, 1) < joined[int(row.client)]]
        tested = sum(row.num_examples for row in new)
        measures["newcomers"] = len(new)
        if tested:
            correct = sum(row.accuracy * row.num_examples for row in new)
            measures["accuracy_newcomers"] = round(correct / tested, 5)
