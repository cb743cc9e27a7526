"""What a node answers: read, checked, and sorted into results and errors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from flwr.app import RecordDict

from cfl_flower.communication.outstanding import PendingMessage
from cfl_flower.communication.partial_sums import (
    add_result,
    open_sums,
    remaining_reply,
)
from cfl_flower.communication.records import HEADER_BYTES, check_reply, unpack_answers
from cfl_flower.communication.results import LIMB_BYTES, Results
from cfl_flower.communication.validation import validate
from cfl_flower.errors import InvalidResultError
from cfl_flower.types import Answer, ClientId, Result, Task, Trace

SILENT = ("missing", "the client sent nothing")

Refused: TypeAlias = dict[ClientId, tuple[InvalidResultError, Trace | None]]
"""Why clients have no valid result, with the traceback that came with it."""


@dataclass(frozen=True)
class ReplyReader:
    """Reads the replies of a run's nodes, and trusts nothing."""

    simulated: bool
    token: str
    """The run's, which a device's reply names."""
    floats: int
    """The length of a model."""

    def read(
        self, pending: PendingMessage, content: RecordDict
    ) -> tuple[Results, Refused]:
        """Return the valid results among a node's answers, and why others are none.

        Raises `InvalidResultError` if the reply as a whole makes no sense.
        """
        plan = pending.plan
        answers = self._unpack(pending, content)
        sums, shares = open_sums(content, pending, answers, self.simulated)
        valid: list[tuple[Task, Result]] = []
        refused: Refused = {}
        for task in pending.tasks:
            client = task.client
            answer = answers.get(client) or Answer(client, error=SILENT)
            try:
                lengths = remaining_reply(task, plan, pending.summed)
                result = validate(answer, pending.phase, lengths, plan.config)
                valid.append((task, result))
            except InvalidResultError as error:
                # Of a device a traceback is a text like any other, and it sends none.
                refused[client] = error, answer.trace if self.simulated else None
        if plan.sum_spec is None:
            return Results(result for _, result in valid), refused
        results = Results()
        results.sums = sums
        for task, result in valid:
            try:
                add_result(results.sums, task, result, plan.sum_spec)
                results.append(replace(result, arrays=[]))
            except InvalidResultError as error:
                refused[task.client] = error, None
        # A device's sum is of its one result: without that, its group goes on alone.
        if refused and not self.simulated:
            results.sums = {}
        elif plan.sum_spec.masked:
            results.shares = {each.client: shares for each in results}
        return results, refused

    def _unpack(
        self, pending: PendingMessage, content: RecordDict
    ) -> dict[ClientId, Answer]:
        """Return the answer of each client of a reply."""
        if not self.simulated:
            each = LIMB_BYTES if pending.summed else 4
            most = HEADER_BYTES + each * sum(pending.plan.reply) + 8 * self.floats
            check_reply(content, self.token, pending.phase, pending.round, most)
        answers = unpack_answers(content)
        found = [answer.client for answer in answers]
        asked = pending.clients
        if not set(found) <= set(asked) or len(set(found)) < len(found):
            detail = f"answers of {found}, not of {asked}"
            raise InvalidResultError("foreign", detail)
        return {answer.client: answer for answer in answers}
