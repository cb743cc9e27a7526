"""A stage of a round, whatever the method, and three small ones.

`AbsentClients` leaves out clients that have not joined yet or have left
(`devices.joins`, `devices.leaves`). `ParticipantLosses` asks for the losses by which
participants are weighted or selected. `GroupMeans` puts the mean of its group in the
place of each participant's model: with `privacy.secure_sums` a method that asked for
single results finds means, and any weighted mean of a group is that mean again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cfl_flower.communication.partial_sums import EMPTY, versions
from cfl_flower.communication.results import Results
from cfl_flower.engine.context import RoundContext
from cfl_flower.engine.presence import Presence
from cfl_flower.privacy.clipping import capped_counts, capped_losses
from cfl_flower.runs.record import ClientRow
from cfl_flower.types import START_LOSS, START_RMS, BoolArray, Plan, Scalar


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


class ParticipantLosses(Stage):
    """Asks for losses, and keeps what selections know participants by."""

    def plan(self, context: RoundContext, plan: Plan) -> Plan:
        """Ask for the losses that the server optimiser or the selection needs."""
        asked: dict[str, Scalar] = {}
        if context.phase == "train" and context.config.server_optimizer.by_loss:
            asked[START_LOSS] = True
        if context.phase == "train" and context.config.selection.learns:
            asked[START_RMS] = True
        return replace(plan, config={**plan.config, **asked})

    def receive(self, context: RoundContext, plan: Plan, results: Results) -> Results:
        """Note the losses and the times of participants."""
        learns = context.phase == "train" and context.config.selection.learns
        if not learns or not results:
            return results
        state = context.state
        history = state.history.extended(len(state.clients))
        clients = [result.client for result in results]
        rms = np.array([float(result.telemetry[START_RMS]) for result in results])
        cap = context.config.strategy.weight_cap
        local = context.config.strategy.local
        told = np.array([[result.num_examples] for result in results])
        seen = capped_counts(told, cap)[:, 0]
        if local.steps is not None:
            # As FedScale: a client is useful for the samples that it can train on.
            seen = np.minimum(seen, local.steps * local.batch_size)
        utilities = capped_losses(rms, cap) * seen
        seconds = context.clock.seconds(clients)
        rows = state.rows(clients)
        state.history = history.noted(context.number, rows, utilities, seconds)
        return results


class GroupMeans(Stage):
    """Gives a method that did not ask for sums its groups' means."""

    def receive(self, context: RoundContext, plan: Plan, results: Results) -> Results:
        """Put each group's mean in the place of its members' models."""
        spec = context.sent.sum_spec
        if context.phase != "train" or spec is None or plan.sum_spec is not None:
            return results
        tasks = {task.client: task for task in context.sent.tasks}
        means = {version: total.mean() for version, total in results.sums.items()}
        found = []
        for result in results:
            places = versions(tasks[result.client], spec)
            # A method with nothing to share sends an array of no numbers.
            arrays = [means.get(version, EMPTY) for version in places]
            found.append(replace(result, arrays=arrays))
        return results.with_results(found)
