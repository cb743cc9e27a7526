"""The tasks of a real device: what it refuses, and what it keeps, whoever asks.

If its own node config asks for masks, of its data a device sends nothing besides but
counts of labels, and the losses and counts of tests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from flwr.app import RecordDict

from cfl_flower.client.drift_report import DriftReport, count_labels
from cfl_flower.client.model_privacy import COVERED, REPORTS
from cfl_flower.client.node_config import NodeConfig
from cfl_flower.client.resources import WorkerResources
from cfl_flower.client.task_runner import KEPT, TaskRunner, text_of
from cfl_flower.communication.partial_sums import PartialSums
from cfl_flower.communication.records import pack_answers
from cfl_flower.communication.task_records import TaskBatch
from cfl_flower.errors import SavedStateError
from cfl_flower.secure.device_sums import DeviceSums, Problem
from cfl_flower.secure.groups import REVEAL
from cfl_flower.types import (
    LEFT_OUT,
    OUTCOMES,
    TELEMETRY,
    UPDATE_LENGTHS,
    Answer,
    ClientId,
    Task,
)

log = logging.getLogger(__name__)

EMPTY = "empty"
"""The metric in which a tested client says that it has no samples any more."""


class DeviceRunner(TaskRunner):
    """Does the tasks of a message to a real device, by its owner's rules."""

    def __init__(
        self, resources: WorkerResources, batch: TaskBatch, node: NodeConfig
    ) -> None:
        super().__init__(resources, batch, node)
        self._own = node
        self._sums = DeviceSums(node, resources.settings)

    def call(self, task: Task, resources: WorkerResources) -> Answer:
        """Return what opens a sum, why the device does not do a task, or its answer.

        Of a device that asks for masks itself, the answer as it may leave.
        """
        batch = self.batch
        if task.client != self._own.client:
            # It was restarted as another client since it identified itself.
            told = f"this device is {self._own.client}"
            return Answer(task.client, error=("identity", told))
        if REVEAL in task.config:
            return self._sums.open_sums(batch.round, task)
        if problem := self._sums.refuse(batch, task) or self._refuse_test():
            return Answer(task.client, error=problem)
        answer = super().call(task, resources)
        if not self._own.secure_sums:
            return answer
        counted = partial(count_labels, self.make_context(task, resources))
        return keep_to_list(batch.phase, answer, counted)

    def pack(self, answers: list[Answer], sums: PartialSums) -> RecordDict:
        """Pack what leaves: sums with masks, shares of seeds, and no plain result."""
        first = self.batch.plan.tasks[0]
        direction = self.sends_direction(first)
        kept = [self._sums.keep_in(answer, direction) for answer in answers]
        if not sums:
            return pack_answers(kept)
        return pack_answers(kept, *self._sums.hide(sums, self.batch.round, first))

    def failed(
        self, client: ClientId, server_round: int, error: BaseException
    ) -> Answer:
        """Return the answer of a client that raised.

        What its exception says, and its traceback, stay in the device's own log.
        """
        words = "client %s raised in round %s, %s: %s"
        # Its message names the remedy, and a traceback adds nothing.
        trace = None if isinstance(error, SavedStateError) else error
        phase = self.batch.phase
        log.error(words, client, server_round, phase, text_of(error), exc_info=trace)
        return Answer(client, error=("raised", f"{type(error).__name__}{KEPT}"))

    def _refuse_test(self) -> Problem | None:
        """Return why a device makes no test, if its owner's rules are against it.

        A test of anything but a received model tells of the samples that made it.
        """
        if not self._own.guards_training or self.batch.phase != "evaluate":
            return None
        strategy = self.settings["strategy"]
        received = getattr(self.resources.client_class, "tests_received", False)
        if received and not (strategy.fine_tuning or strategy.label_shares):
            return None
        why = "its owner lets it test received models alone, as they are"
        return "refused", f"{why}; {strategy.client} tests others with these settings"


def keep_to_list(
    phase: str, answer: Answer, counted: Callable[[], DriftReport]
) -> Answer:
    """Return an answer with no other metrics than a device's own rule allows.

    A report must be that of the labels that the device ``counted`` itself: numbers as
    few may be a gradient. A test loses what is not allowed; any other answer is a
    failure, as its method needs what it lacks.
    """
    allowed = COVERED[phase] | {EMPTY}
    # Half of another report would tell that it was made.
    if answer.metrics.keys() >= REPORTS and (
        counted().to_metrics().items() <= answer.metrics.items()
    ):
        allowed |= REPORTS
    # The engine can do without its own measures, but not without lengths. At a model
    # of a server's making, the length of an update tells of single samples.
    spared = set(TELEMETRY) - {UPDATE_LENGTHS}
    lost = sorted(answer.metrics.keys() - allowed - spared)
    if lost and phase != "evaluate":
        why = f"its owner lets no {', '.join(lost)} leave, with secure-sums"
        return Answer(answer.client, error=("refused", why))
    kept = {k: v for k, v in answer.metrics.items() if k in allowed}
    if OUTCOMES in answer.metrics:
        kept[OUTCOMES] = LEFT_OUT
    return replace(answer, metrics=kept)
