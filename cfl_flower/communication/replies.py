"""What a node answers: read, checked, and sorted into results and errors."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from flwr.app import RecordDict

from cfl_flower.communication.outstanding import PendingMessage
from cfl_flower.communication.partial_sums import (
    add_result,
    open_sums,
    remaining_reply,
)
from cfl_flower.communication.records import unpack_answers
from cfl_flower.communication.results import Results
from cfl_flower.communication.validation import validate
from cfl_flower.errors import InvalidResultError
from cfl_flower.types import Answer, ClientId, Trace

SILENT = ("missing", "the client sent nothing")

Refused: TypeAlias = dict[ClientId, tuple[InvalidResultError, Trace | None]]
"""Why clients have no valid result, with the traceback that came with it."""


def read_answers(
    pending: PendingMessage, content: RecordDict, simulated: bool
) -> tuple[Results, Refused]:
    """Return the valid results among a node's answers, and why others are none.

    Raises `InvalidResultError` if the reply as a whole makes no sense.
    """
    plan = pending.plan
    listed = unpack_answers(content)
    answers = {answer.client: answer for answer in listed}
    if not answers.keys() <= set(pending.clients) or len(answers) < len(listed):
        found = [answer.client for answer in listed]
        detail = f"answers of {found}, not of {pending.clients}"
        raise InvalidResultError("foreign", detail)
    results = Results()
    results.sums, shares = open_sums(content, pending, answers, simulated)
    refused: Refused = {}
    for task in pending.tasks:
        client = task.client
        answer = answers.get(client) or Answer(client, error=SILENT)
        try:
            lengths = remaining_reply(task, plan, pending.summed)
            result = validate(answer, pending.phase, lengths, plan.config)
            if plan.sum_spec is not None:
                add_result(results.sums, task, result, plan.sum_spec)
                result = replace(result, arrays=[])
            results.append(result)
        except InvalidResultError as error:
            # Of a device a traceback is a text like any other, and it sends none.
            refused[client] = error, answer.trace if simulated else None
    # A device's sum is of its one result: without that, its group goes on alone.
    if refused and not simulated:
        results.sums = {}
    elif plan.sum_spec is not None and plan.sum_spec.masked:
        results.shares = {each.client: shares for each in results}
    return results, refused
