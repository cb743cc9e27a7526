"""Flower mods: what a method wants of a ClientApp beside training and tests.

    app = ClientApp(mods=[label_histogram(labels, classes=10)])

    @app.train(mods=[choose_by_loss(evaluate)])
    def train(message: Message, context: Context) -> Message: ...

    @app.evaluate(mods=[fine_tune(train, epochs=1)])
    def evaluate(message: Message, context: Context) -> Message: ...

    app = ClientApp(client_fn=client_fn, mods=[label_histogram(...), numpy_client])

A mod answers what the server asks in a record of its own, and hands everything else to
the app as it came. What it has to remember is in `context.state`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any, TypeAlias

import numpy as np
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MetricRecord,
    RecordDict,
)
from numpy.typing import ArrayLike

from cfl_flower.client.drift_report import DriftReport, ReportRequest
from cfl_flower.clustering import representations
from cfl_flower.settings import require
from cfl_flower.types import FloatArray

ASK = "cfl-flower"
"""The name of the record with a question, of that with the answer, and of the state."""

FINE_TUNING = "fine-tuning-epochs"
"""What `fine_tune` puts into the config of train."""

LOSSES = f"{ASK}.losses"
"""The record of a node's state with its smallest loss on the data of time steps."""

NEW = -1
"""FedDrift's number of a model that the server does not have yet."""

Call: TypeAlias = Callable[[Message, Context], Message]
App: TypeAlias = Callable[[Message, Context], Message]
Mod: TypeAlias = Callable[[Message, Context, Call], Message]


def _question(message: Message, key: str) -> ConfigRecord | None:
    """Return what the server asks of a mod; None if nothing, or of another mod."""
    asked = message.content.config_records.get(ASK)
    return asked if asked is not None and key in asked else None


def label_histogram(labels: Callable[[Context], ArrayLike], classes: int) -> Mod:
    """Return a mod that reports the share of each label, when it changed.

    ``labels(context)`` returns the labels of the samples that the node has now: whole
    numbers from 0 to ``classes`` - 1. The histogram leaves the device, the labels do
    not.
    """

    def mod(message: Message, context: Context, call_next: Call) -> Message:
        asked = _question(message, "representation")
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
    kept: Any = context.state.config_records.get(ASK)
    last = None if kept is None else np.frombuffer(kept["reported"], np.float32)
    known = last is not None and representations.digest(last) == request.held
    if last is not None and known and abs(now - last).sum() <= request.tolerance:
        return {}
    report = DriftReport(now, len(own)).to_metrics()
    context.state[ASK] = ConfigRecord({"reported": report["representation"]})
    return report


def choose_by_loss(
    evaluate: App, loss: str = "loss", version: Callable[[Context], str] | None = None
) -> Mod:
    """Return a mod of an app's train: it trains the model with the smallest loss.

    ``evaluate`` is the app's own, or one that tests on the data to train on, as IFCA's
    paper does; ``loss`` is the name of its metric. ``version(context)`` changes when
    the node's data do: FedDrift looks for a rise of the loss then, and without it in
    every round. The number of the model leaves the device, with FedDrift all losses.
    """

    def mod(message: Message, context: Context, call_next: Call) -> Message:
        asked: Any = _question(message, "models")
        if asked is None:
            return call_next(message, context)
        content = message.content
        others = [content.pop(f"{ASK}.{k}") for k in range(1, asked["models"])]
        del content[ASK]
        models: list[Any] = [content[asked["arrays"]], *others]
        tested = []
        for model in models:
            message.content = RecordDict({**content, asked["arrays"]: model})
            tested.append(_test(evaluate(message, context), loss, asked["weight"]))
        losses, counts = np.array(tested).T
        chosen = int(np.nan_to_num(losses, nan=np.inf).argmin())
        message.content = RecordDict({**content, asked["arrays"]: models[chosen]})
        answer: dict[str, Any] = {"cluster": chosen}
        if "assigned" in asked:
            now = version(context) if version else ""
            answer = _drift_report(losses, counts[chosen], now, asked, context)
        reply = Message(RecordDict(), reply_to=message)
        if asked["train"]:
            reply = call_next(message, context)
        reply.content[ASK] = ConfigRecord(answer)
        return reply

    return mod


def fine_tune(train: App, epochs: int = 1) -> Mod:
    """Return a mod of an app's evaluate, which tests what train makes of the model.

    ``train`` is the app's, and finds `FINE_TUNING` in its config. Nothing of what it
    does leaves the device or stays in the context.
    """
    ok = isinstance(epochs, int) and epochs > 0
    require(ok, "fine_tune: epochs", epochs, "a whole number above 0")

    def mod(message: Message, context: Context, call_next: Call) -> Message:
        content = message.content
        keys = [name for name, record in content.array_records.items() if record]
        if message.metadata.message_type != "evaluate" or not keys:
            return call_next(message, context)
        configs = content.config_records.items()
        told = {k: ConfigRecord({**each, FINE_TUNING: epochs}) for k, each in configs}
        message.content = RecordDict({**content, **told})
        trained = train(message, deepcopy(context)).content.array_records
        require(len(trained) == 1, "fine_tune: train", [*trained], "one ArrayRecord")
        arrays = dict(zip(keys, trained.values(), strict=True))
        message.content = RecordDict({**content, **arrays})
        return call_next(message, context)

    return mod


def numpy_client(message: Message, context: Context, call_next: Call) -> Message:
    """Translate messages for an app of a ``client_fn``, which returns a `NumPyClient`.

    It is the last mod of the app. The reply has the names of the arrays that came, the
    client's metrics that are numbers, ``num-examples``, and of a test the ``loss``.
    """
    verb = {"train": "fit", "evaluate": "evaluate"}[message.metadata.message_type]
    # What a mod is asked that this app does not have is not for the client.
    records = {k: r for k, r in message.content.items() if not k.startswith(ASK)}
    content = RecordDict(records)
    (sent,) = content.array_records.values()
    (config,) = content.config_records.values()
    message.content = RecordDict(
        {
            f"{verb}ins.parameters": ArrayRecord(sent.to_numpy_ndarrays()),
            f"{verb}ins.config": config,
        }
    )
    reply = call_next(message, context)
    result: Any = {key.split(".")[1]: each for key, each in reply.content.items()}
    if result["status"]["code"]:
        raise ValueError(f"{verb} failed: {result['status']['message']}")
    told = {**result.get("loss", {}), **result["metrics"]}
    # A record of metrics takes no bool, which a client may return.
    numbers: Any = {k: float(n) for k, n in told.items() if isinstance(n, int | float)}
    numbers["num-examples"] = result["num_examples"]["num_examples"]
    reply.content = RecordDict({"metrics": MetricRecord(numbers)})
    if verb == "fit":
        arrays = result["parameters"].to_numpy_ndarrays()
        if len(arrays) != len(sent):
            raise ValueError(f"fit: {len(sent)} arrays came, {len(arrays)} left")
        named = zip(sent, map(Array, arrays), strict=True)
        reply.content["arrays"] = ArrayRecord(dict(named))
    return reply


def _test(reply: Message, loss: str, weight: str) -> tuple[Any, Any]:
    """Return the loss and the samples of a test."""
    metrics = {
        k: v for r in reply.content.metric_records.values() for k, v in r.items()
    }
    if not isinstance(metrics.get(loss), int | float) or weight not in metrics:
        raise ValueError(
            f"choose_by_loss: evaluate returned {sorted(metrics)}, without {loss} or "
            f'{weight}; return both, or give choose_by_loss(evaluate, loss="...")'
        )
    return metrics[loss], metrics[weight]


def _drift_report(
    losses: FloatArray, count: float, version: str, asked: Any, context: Context
) -> dict[str, Any]:
    """Return FedDrift's report of a node that keeps no earlier data."""
    # A result that was lost left a step that the server does not know.
    last = str(max((step for step, _ in json.loads(asked["assigned"])), default=0))
    kept: Any = context.state.config_records.get(LOSSES, {})
    before = kept.get(last)
    same = version != "" and kept.get(f"{last}.version") == version
    step = last if same else str(asked["round"])
    smallest = float(losses.min())
    drifted = before is not None and not same and smallest - before > asked["delta"]
    now: dict[str, Any] = {step: smallest, f"{step}.version": version}
    known = {name: each for name, each in kept.items() if name.split(".")[0] == last}
    context.state[LOSSES] = ConfigRecord({**known, **now})
    table = np.zeros((len(losses), len(losses)), np.float32)
    counts = np.zeros(len(losses), np.float32)
    chosen = int(losses.argmin())
    if not drifted:
        table[chosen] = losses
        counts[chosen] = count
    report = {"chosen": NEW if drifted else chosen, "step": int(step)}
    return {**report, "losses": table.tobytes(), "counts": counts.tobytes()}
