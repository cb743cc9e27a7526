"""What `privacy=` does to a round's training: who takes part, what the method sees."""

from __future__ import annotations

from cfl_flower.communication.fleet import Fleet
from cfl_flower.communication.results import Results
from cfl_flower.engine.privacy_budget import PrivacyGuard
from cfl_flower.engine.secure_sums import Asker, SecureSums
from cfl_flower.privacy.accounting import PrivacyLoss
from cfl_flower.runs.record import RoundRecord
from cfl_flower.types import Plan


class ConfidentialTraining:
    """The plan of a round's training, and its results on their way to the method.

    With a ``guard`` who keeps account, with ``sums`` that are all that can be read,
    with both, or with neither, when all stays as it is.
    """

    def __init__(
        self, fleet: Fleet, guard: PrivacyGuard | None, sums: SecureSums | None
    ) -> None:
        self._fleet = fleet
        self._guard = guard
        self._sums = sums
        self._plan = Plan([])
        self._singly = True

    def __bool__(self) -> bool:
        """Return whether a method sees anything else than single results."""
        return bool(self._guard or self._sums)

    def plan(self, plan: Plan, record: RoundRecord, loss: PrivacyLoss) -> Plan:
        """Return a method's plan, for those who may take part."""
        if not self:
            return plan
        self._singly = plan.sum_spec is None
        if self._guard:
            plan = self._guard.plan_training(plan, loss)
        if self._sums and any(plan.reply):
            keys = None if self._fleet.simulated else self._fleet.keys
            plan = self._sums.plan(plan, record, keys)
        if self._guard:
            asked = [task.client for task in plan.tasks]
            self._guard.will_ask("train", record.round, asked)
        self._plan = plan
        return plan

    def receive(
        self, results: Results, record: RoundRecord, loss: PrivacyLoss, ask: Asker
    ) -> None:
        """Leave a method what it may see of the results; account for what was sent.

        ``ask`` asks devices what opens their sums.
        """
        plan = self._plan
        summed = plan.sum_spec is not None
        if self._sums and summed:
            asker = None if self._fleet.simulated else ask
            record.failures += self._sums.open(plan, results, asker)
        if self._guard:
            self._guard.count_training(plan, loss, record.round)
            self._guard.release(record, plan, results, loss, self._fleet.simulated)
        if self._sums and summed and self._singly:
            self._sums.replace_by_means(plan, results)
        # It holds models that will have been replaced.
        self._plan = Plan([])
