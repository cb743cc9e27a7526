"""Flower mods: what a method wants of a ClientApp beside training and tests.

    app = ClientApp(mods=[label_histogram(labels, classes=10)])

A mod answers what the server asks in a record of its own, and hands everything else to
the app as it came. What it has to remember is in `context.state`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from numpy.typing import ArrayLike

from cfl_flower.client.drift_report import DriftReport, ReportRequest
from cfl_flower.clustering import representations
from cfl_flower.types import Vector

ASK = "cfl-flower"
"""The name of the record with a question, of that with the answer, and of the state."""

Call: TypeAlias = Callable[[Message, Context], Message]
Mod: TypeAlias = Callable[[Message, Context, Call], Message]


def label_histogram(labels: Callable[[Context], ArrayLike], classes: int) -> Mod:
    """Return a mod that reports the share of each label, when it changed.

    ``labels(context)`` returns the labels of the samples that the node has now: whole
    numbers from 0 to ``classes`` - 1. The histogram leaves the device, the labels do
    not.
    """

    def mod(message: Message, context: Context, call_next: Call) -> Message:
        asked = message.content.config_records.get(ASK)
        if asked is None:
            return call_next(message, context)
        del message.content[ASK]
        reply = Message(RecordDict(), reply_to=message)
        if asked["test"]:
            reply = call_next(message, context)
        own = read_labels(labels(context), classes)
        reply.content[ASK] = ConfigRecord(_report(own, classes, dict(asked), context))
        return reply

    return mod


def read_labels(found: ArrayLike, classes: int) -> np.ndarray[Any, Any]:
    """Return labels as an array, shape (n,).

    Raises `ValueError` unless they are whole numbers from 0 to ``classes`` - 1.
    """
    own = np.asarray(found)
    whole = own.size == 0 or own.dtype.kind in "iu"
    if not whole or own.ndim != 1 or not ((own >= 0) & (own < classes)).all():
        raise ValueError(
            f"label_histogram: labels={own.ravel()[:3].tolist()} are not allowed; "
            f"return a list of whole numbers from 0 to {classes - 1}"
        )
    return own.astype(np.int64)


def _report(
    own: np.ndarray[Any, Any], classes: int, asked: dict[str, Any], context: Context
) -> dict[str, Any]:
    """Return the report on labels unless the server holds it, or it is tolerated."""
    request = ReportRequest.from_config(asked)
    if request is None or (len(own) == 0 and request.held is not None):
        return {}
    now = representations.label_histogram(own, classes)
    if representations.digest(now) == request.held:
        return {}
    last = _last(context)
    known = last is not None and representations.digest(last) == request.held
    if last is not None and known and abs(now - last).sum() <= request.tolerance:
        return {}
    report = DriftReport(now, len(own)).to_metrics()
    context.state[ASK] = ConfigRecord({"reported": report["representation"]})
    return report


def _last(context: Context) -> Vector | None:
    """Return the histogram that was reported last, None before the first."""
    kept = context.state.config_records.get(ASK)
    return None if kept is None else np.frombuffer(kept["reported"], np.float32)  # type: ignore[arg-type]
