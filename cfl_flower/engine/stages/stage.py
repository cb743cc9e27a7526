"""A stage of a round, whatever the method, and three small ones.

`AbsentClients` leaves out clients that have not joined yet or have left
(`devices.joins`, `devices.leaves`). `ReportBudget` leaves out the reports of a client
that says in every round that its data are others, and would have all clients clustered
anew. `ParticipantLosses` asks for the losses by which participants are weighted or
selected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from cfl_flower.communication.results import Results
from cfl_flower.engine.context import RoundContext
from cfl_flower.engine.delivery import Delivery, reports_news, without_report
from cfl_flower.engine.participants import Participants
from cfl_flower.learning.outcomes import COUNTED
from cfl_flower.privacy.clipping import capped_counts, capped_losses
from cfl_flower.run_config import RunConfig
from cfl_flower.runs.measures import pooled
from cfl_flower.runs.record import ClientRow
from cfl_flower.settings import require
from cfl_flower.types import (
    START_LOSS,
    START_RMS,
    BoolArray,
    ClientId,
    Plan,
    Scalar,
)

MOST = 3.0
"""Re-clusterings in a row that the reports of a few clients may lead to."""

REGAINED = 0.2
"""Re-clusterings that each of them may lead to again after another round."""


class Stage:
    """A step between the method and its clients, on the way out and on the way back.

    The order of all stages is in `cfl_flower.engine.stages`: a plan passes them from
    first to last, results from last to first.
    """

    phases: ClassVar[Sequence[str]] = ("train",)
    """Phases whose plans and results pass the stage: ``query``, ``train``,
    ``evaluate``."""
    shows_models: ClassVar[bool] = True
    """Whether results of training still have their participants' models."""
    expects_results: ClassVar[bool] = True
    """Whether a run ends with a round of which no result is left."""
    asks_who_is_empty: ClassVar[bool] = True
    """Whether clients may be asked if no data are left."""

    def __init__(
        self, context: RoundContext, participants: Participants, delivery: Delivery
    ) -> None:
        self.context = context
        self.config = context.config
        self.participants = participants
        self.delivery = delivery
        self.begin()

    def begin(self) -> None:
        """Begin a run, or go on with one."""

    @classmethod
    def applies(cls, config: RunConfig, simulated: bool = True) -> bool:
        """Return whether a run, of a simulation or of real devices, has this stage."""
        return True

    @classmethod
    def check(cls, config: RunConfig, method: type[Any]) -> None:
        """Raise `ConfigError` for settings, or a method, that it does not go with."""

    def open(self) -> None:
        """Begin a round, before anybody is chosen for training."""

    def plan(self, plan: Plan) -> Plan:
        """Return the plan as it goes on."""
        return plan

    def send(self, plan: Plan) -> None:
        """Note a plan that has passed all stages, before a message leaves."""

    def receive(self, plan: Plan, results: Results) -> Results:
        """Return the results as they go on to the method.

        ``plan`` is the one that `plan` was given; `RoundContext.sent` is what all
        stages made of it, with the sums that a stage below has made since. Results of
        training have been read by the method; those of tests and queries are not yet.
        """
        return results

    def close(self, rows: Sequence[ClientRow]) -> None:
        """End a round, when all of it is known but how long it took."""


def check_hidden(config: RunConfig, hidden_by: str) -> None:
    """Refuse settings that a run which hides something of its clients cannot have.

    ``hidden_by`` is the setting, which covers no losses. A server that dies goes back
    to its checkpoint, account and all: devices know what they sent in the last rounds,
    and answer earlier ones anew.
    """
    every = config.system.checkpoint_every
    allowed = "1 with privacy, so that a restart repeats no round that was sent"
    require(every == 1, "system.checkpoint_every", every, allowed)
    asked = config.metrics
    why = "which hides how many samples of each label a client has"
    others = "the others are of counts by label"
    allowed = f"worst_tenth and forgetting alone with privacy, {why}; {others}"
    counted = set(COUNTED).intersection(asked)
    require(not counted, "metrics", f"[{','.join(asked)}]", allowed)
    why = f"with {hidden_by}, which covers no losses"
    learns = config.selection.learns
    config.require_option(not learns, "selection", f"random or nearest {why}")
    by_loss = config.server_optimizer.by_loss
    config.require_option(not by_loss, "server_optimizer", f"another one {why}")


class AbsentClients(Stage):
    """Asks nothing of who is not there, and scores who is tested for the first time."""

    phases = ("query", "train", "evaluate")

    def begin(self) -> None:
        """Draw who is there when, who alone may take part."""
        config = self.config
        self._presence = config.devices.open_presence(config.clients, config.seed)
        self.participants.eligible.append(self._among_clients)

    @classmethod
    def applies(cls, config: RunConfig, simulated: bool = True) -> bool:
        """Return whether simulated clients come and go."""
        return bool(config.devices.joins or config.devices.leaves) and simulated

    @classmethod
    def check(cls, config: RunConfig, method: type[Any]) -> None:
        """Refuse a method that chooses nobody of those who are there."""
        name = f"strategy={config.names['strategy']}"
        allowed = "a method that selects participants"
        ok = method.supports.selection
        require(ok, "devices.joins or devices.leaves", name, allowed)

    def _among_clients(self) -> BoolArray:
        """Return which clients of the state are there, in its order."""
        there = self._presence.there(self.context.number)
        return there[np.array(self.context.state.clients, np.int64)]

    def plan(self, plan: Plan) -> Plan:
        """Leave out the tasks of who is not there."""
        there = self._presence.there(self.context.number)
        tasks = [task for task in plan.tasks if there[int(task.client)]]
        return replace(plan, tasks=tasks)

    def close(self, rows: Sequence[ClientRow]) -> None:
        """Note how many are there, and the accuracy of those who have just joined."""
        number = self.context.number
        measures = self.context.record.measures
        measures["present"] = int(self._presence.there(number).sum())
        every = self.config.system.evaluate_every
        tested_before = (number - 1) // every * every
        joined = self._presence.first
        new = [row for row in rows if max(tested_before, 1) < joined[int(row.client)]]
        measures["newcomers"] = len(new)
        counts = np.array([row.num_examples for row in new])
        if counts.any():
            correct = counts * [row.accuracy for row in new]
            accuracy = pooled(correct, counts, self.config.cap_of_tests)
            measures["accuracy_newcomers"] = round(accuracy, 5)


class ReportBudget(Stage):
    """Leaves out the reports of clients that led to too many re-clusterings.

    If more than half of the clients report in a round, they all drift, and it is on
    nobody's account.
    """

    phases = ("evaluate",)

    _reporters: Sequence[ClientId] = ()

    def receive(self, plan: Plan, results: Results) -> Results:
        """Leave out reports beyond the budget; their tests count."""
        led = self.context.state.led
        reporters = [result.client for result in results if reports_news(result)]
        resting = [each for each in reporters if led.get(each, 0.0) > MOST - 1]
        self._reporters = [each for each in reporters if each not in resting]
        if not resting:
            return results
        self.context.record.measures["resting"] = resting
        return results.with_results(
            without_report(result) if result.client in resting else result
            for result in results
        )

    def close(self, rows: Sequence[ClientRow]) -> None:
        """Charge a re-clustering to the few who reported."""
        state = self.context.state
        left = {c: n - REGAINED for c, n in state.led.items() if n > REGAINED}
        few = 2 * len(self._reporters) <= len(state.clients)
        if self.context.record.reclustered and few:
            left |= {c: left.get(c, 0.0) + 1 for c in self._reporters}
        state.led = left


class ParticipantLosses(Stage):
    """Asks for losses, and keeps what selections know participants by."""

    def plan(self, plan: Plan) -> Plan:
        """Ask for the losses that the server optimiser or the selection needs."""
        asked: dict[str, Scalar] = {}
        if self.config.server_optimizer.by_loss:
            asked[START_LOSS] = True
        if self.config.selection.learns:
            asked[START_RMS] = True
        return replace(plan, config={**plan.config, **asked})

    def receive(self, plan: Plan, results: Results) -> Results:
        """Note the losses and the times of participants."""
        if not self.config.selection.learns or not results:
            return results
        state = self.context.state
        history = state.history.extended(len(state.clients))
        clients = [result.client for result in results]
        rms = np.array([float(result.telemetry[START_RMS]) for result in results])
        cap = self.config.strategy.weight_cap
        local = self.config.strategy.local
        told = np.array([[result.num_examples] for result in results])
        seen = capped_counts(told, cap)[:, 0]
        if local.steps is not None:
            # As FedScale: a client is useful for the samples that it can train on.
            seen = np.minimum(seen, local.steps * local.batch_size)
        utilities = capped_losses(rms, cap) * seen
        seconds = self.context.clock.seconds(clients)
        rows = state.rows(clients)
        state.history = history.noted(self.context.number, rows, utilities, seconds)
        return results
