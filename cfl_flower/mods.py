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
from functools import wraps
from typing import Any, ParamSpec, TypeAlias

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

from cfl_flower.client.drift_report import (
    HELD,
    DriftReport,
    ReportRequest,
    read_labels,
)
from cfl_flower.clustering import representations
from cfl_flower.errors import ConfigError
from cfl_flower.settings import Count, checked, require
from cfl_flower.types import REPORT, FloatArray, Vector

ASK = "cfl-flower"
"""The name of the record with a question, of that with the answer, and of the state."""

FIRST = f"{ASK}.first"
"""The record of a node's state with the app's initial arrays, of the message that
brings them, and what a node says that has lost them."""

FAILED = "failed"
"""Key of a report whose test failed, with the error."""

NEAR = f"{ASK}.near"
"""StoCFL's global model, beside that of a cluster; lambda is `NEAR_LAMBDA`'s."""

NEAR_LAMBDA = "near-lambda"
"""What a train that finds `NEAR` adds to its loss: half of it times the squared
distance from these arrays."""

FINE_TUNING = "fine-tuning-epochs"
"""Key that `fine_tune` puts into the config of train."""

LOSSES = f"{ASK}.losses"
"""The record of a node's state with its smallest loss on the data of time steps."""

NEW = -1
"""FedDrift's number of a model that the server does not have yet."""

Call: TypeAlias = Callable[[Message, Context], Message]
"""An app's function, or all that follows a mod."""
Mod: TypeAlias = Callable[[Message, Context, Call], Message]
Labels: TypeAlias = Callable[[Context], ArrayLike]
Describe: TypeAlias = Callable[[ConfigRecord, Context], tuple[Vector, int] | None]
"""Returns what describes a node's data, as it was asked, and the number of samples;
None if that needs the app's initial arrays, and they are lost."""
P = ParamSpec("P")


def makes_a_mod(make: Callable[P, Mod]) -> Callable[P, Mod]:
    """Refuse a function that makes a mod where an app has it for the mod itself."""

    @wraps(make)
    def make_mod(*args: P.args, **options: P.kwargs) -> Mod:
        if args and isinstance(args[0], Message):
            fault = f"mods=[{make.__name__}] is not allowed"
            remedy = "call it, as the examples of cfl_flower.mods do"
            raise ConfigError(f"{fault}; {remedy}")
        return checked(make)(*args, **options)

    return make_mod


def _question(message: Message, key: str) -> ConfigRecord | None:
    """Return what the server asks of a mod; None if nothing, or of another mod."""
    asked = message.content.config_records.get(ASK)
    return asked if asked is not None and key in asked else None


def _tested(message: Message) -> str | None:
    """Return the name of the arrays that a message wants tested; None of another."""
    if message.metadata.message_type != "evaluate":
        return None
    records = message.content.array_records.items()
    return next((name for name, record in records if record), None)


def _reports(kind: str, describe: Describe) -> Mod:
    """Return a mod that reports what describes a node's data, when it changed."""

    def mod(message: Message, context: Context, call_next: Call) -> Message:
        asked: Any = _question(message, REPORT)
        if asked is None or asked[REPORT] != kind:
            return call_next(message, context)
        content = message.content
        del content[ASK]
        if FIRST in content:
            context.state[FIRST] = content.pop(FIRST)
        elif not asked.get(HELD):
            # Who joins receives the app's initial arrays with the first question.
            (context.state[FIRST],) = content.array_records.values()
        reply = Message(RecordDict(), reply_to=message)
        failed = None
        if asked["test"]:
            try:
                reply = call_next(message, context)
            except Exception as error:  # noqa: BLE001 - an app may raise any
                failed = error
        found = describe(asked, context)
        lost: dict[str, Any] = {FIRST: True}
        answer = _report(*found, dict(asked), context) if found else lost
        if failed is not None:
            if not answer:
                raise failed
            # Flower's own answer to an error has no room for a report.
            answer[FAILED] = f"{type(failed).__name__}: {failed}"
        reply.content[ASK] = ConfigRecord(answer)
        return reply

    return mod


@makes_a_mod
def label_histogram(labels: Labels, classes: Count) -> Mod:
    """Return a mod that reports the share of each label, when it changed.

    ``labels(context)`` returns the labels of the samples that the node has now: whole
    numbers from 0 to ``classes`` - 1. The histogram leaves the device, the labels do
    not.
    """

    def describe(asked: ConfigRecord, context: Context) -> tuple[Vector, int]:
        own = read_labels(labels(context), classes)
        return representations.label_histogram(own, classes), len(own)

    return _reports("label_histogram", describe)


@makes_a_mod
def embedding(embed: Callable[[ArrayRecord, Context], ArrayLike]) -> Mod:
    """Return a mod that reports the mean of samples' embeddings, when it changed.

    ``embed(arrays, context)`` returns an embedding of each sample that the node has
    now, (n, D), by a network with the app's initial arrays: such as the outputs of its
    last layer but one. The mean leaves the device.
    """

    def describe(asked: ConfigRecord, context: Context) -> tuple[Vector, int] | None:
        if FIRST not in context.state:
            return None
        found = np.asarray(embed(context.state.array_records[FIRST], context))
        ok = found.ndim == 2 and found.dtype.kind in "fiu"
        what = f"{found.dtype}{found.shape}"
        require(ok, "embedding", what, "numbers, with a row for each sample")
        mean = (found.sum(0, dtype=np.float64) / max(len(found), 1)).astype(np.float32)
        scaled = asked["distance"] == "cosine"
        return representations.unit(mean) if scaled else mean, len(found)

    return _reports("embedding", describe)


def _report(
    now: Vector, count: int, asked: dict[str, Any], context: Context
) -> dict[str, Any]:
    """Return a report unless the server holds it, or the change is tolerated."""
    request = ReportRequest.of(asked)
    if request is None or (count == 0 and request.held):
        return {}
    if representations.digest(now) == request.held:
        return {}
    kept: Any = context.state.config_records.get(ASK)
    last = None if kept is None else np.frombuffer(kept["reported"], np.float32)
    if last is not None and representations.digest(last) == request.held:
        pair = last[None], now[None]
        change = representations.distances(*pair, asked["distance"])[0, 0]
        if change <= request.tolerance:
            return {}
    report = DriftReport(now, count).to_metrics()
    context.state[ASK] = ConfigRecord({"reported": report[REPORT]})
    return report


@makes_a_mod
def label_shares(labels: Labels, classes: Count, bias: str) -> Mod:
    """Return a mod of an app's evaluate: it adds the log of a node's label shares.

    It is added to the outputs of the model that is tested, as Menon et al. (ICLR 2021)
    adjust logits: to the array ``bias``, of the last layer. The share of a label is
    (n_y + 1) / (n + L). Nothing leaves the device.
    """

    def mod(message: Message, context: Context, call_next: Call) -> Message:
        name = _tested(message)
        if name is None:
            return call_next(message, context)
        arrays = message.content.array_records[name]
        require(bias in arrays, "label_shares: bias", bias, f"one of {[*arrays]}")
        before = arrays[bias].numpy()
        ok = before.shape == (classes,)
        require(ok, "label_shares: bias", before.shape, f"an array of ({classes},)")
        own = read_labels(labels(context), classes)
        shares = representations.log_label_shares(own, classes)
        shifted = (before + shares).astype(before.dtype)
        changed = ArrayRecord({**arrays, bias: Array(shifted)})
        message.content = RecordDict({**message.content, name: changed})
        return call_next(message, context)

    return mod


@makes_a_mod
def choose_by_loss(
    evaluate: Call, loss: str = "loss", version: Callable[[Context], str] | None = None
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
        ((name, first),) = content.array_records.items()
        models = [first, *others]
        tested = []
        for model in models:
            message.content = RecordDict({**content, name: model})
            tested.append(_test(evaluate(message, context), loss, asked["weight"]))
        losses, counts = np.array(tested).T
        chosen = int(np.nan_to_num(losses, nan=np.inf).argmin())
        message.content = RecordDict({**content, name: models[chosen]})
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


@makes_a_mod
def fine_tune(train: Call, epochs: Count = 1) -> Mod:
    """Return a mod of an app's evaluate, which tests what train makes of the model.

    ``train`` is the app's, and finds `FINE_TUNING` in its config. Nothing of what it
    does leaves the device or stays in the context.
    """

    def mod(message: Message, context: Context, call_next: Call) -> Message:
        content = message.content
        name = _tested(message)
        if name is None:
            return call_next(message, context)
        configs = content.config_records.items()
        told = {k: ConfigRecord({**each, FINE_TUNING: epochs}) for k, each in configs}
        message.content = RecordDict({**content, **told})
        trained = train(message, deepcopy(context)).content.array_records
        require(len(trained) == 1, "fine_tune: train", [*trained], "one ArrayRecord")
        (arrays,) = trained.values()
        message.content = RecordDict({**content, name: arrays})
        return call_next(message, context)

    return mod


def numpy_client(message: Message, context: Context, call_next: Call) -> Message:
    """Translate messages for an app of a ``client_fn``, which returns a `NumPyClient`.

    It is the last mod of the app. The reply has the names of the arrays that came, the
    client's metrics that are numbers, ``num-examples``, and of a test the ``loss``.
    """
    verb = {"train": "fit", "evaluate": "evaluate"}[message.metadata.message_type]
    # Requests to mods that this app lacks are not for the client.
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
    try:
        reply = call_next(message, context)
    except Exception as error:
        # Flower says in many lines what a client has to return.
        raise ValueError(" ".join([f"{verb}:", *str(error).split()])) from error
    result: Any = {key.split(".")[1]: each for key, each in reply.content.items()}
    if result["status"]["code"]:
        raise ValueError(f"{verb} failed: {result['status']['message']}")
    told = {**result["metrics"], **result.get("loss", {})}
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
    metrics: dict[str, Any] = dict(*reply.content.metric_records.values())
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
    finite = np.isfinite(losses)
    if finite.any():
        # A model whose loss is no number is worse than all others.
        losses = np.where(finite, losses, losses[finite].max() + 1)
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
