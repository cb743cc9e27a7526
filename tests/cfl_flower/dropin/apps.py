"""Small apps of four nodes, and how a strategy runs over them."""

from typing import Any

import cfl_flower.strategies as plain
import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from cfl_flower.mods import choose_by_loss, label_histogram
from simulations.engines.inprocess import InProcessGrid

WEIGHT = "layer.weight"
SEEN = "layer.seen"
SCALE = "layer.scale"

INITIAL = {
    "layer.weight": np.zeros((2, 3), np.float64),
    "layer.seen": np.array(0, np.int64),
    "layer.scale": np.zeros(4, np.float32),
}


def record(**arrays: Any) -> ArrayRecord:
    """Return arrays, by default the initial ones, as a record."""
    named = {**INITIAL, **{f"layer.{name}": each for name, each in arrays.items()}}
    return ArrayRecord({name: Array(np.asarray(each)) for name, each in named.items()})


def make_app(labels: Any = None, answers: dict[int, Any] | None = None) -> ClientApp:
    """Return an app whose nodes add their number + 1, or answer otherwise."""
    mods = [] if labels is None else [label_histogram(labels, classes=4)]
    app = ClientApp(mods=mods)

    def answer(message: Message, context: Context) -> Message:
        node = int(context.node_config["partition-id"])
        content = RecordDict({"metrics": MetricRecord({"num-examples": node + 1})})
        if "cfl-flower" not in message.content and message.content["arrays"]:
            weight = message.content["arrays"]["layer.weight"].numpy() + node + 1
            content["arrays"] = record(weight=weight, seen=np.array(node))
        content = (answers or {}).get(node, lambda content: content)(content)
        return Message(content, reply_to=message)

    app.train()(answer)
    app.evaluate()(answer)
    return app


def reporting(mod: Any) -> ClientApp:
    """Return an app with a mod."""
    app = ClientApp(mods=[mod])
    app.train()(make_app())
    app.evaluate()(make_app())
    return app


def start(
    app: Any,
    kind: Any = plain.FedAvg,
    rounds: int = 2,
    initial: ArrayRecord | None = None,
    evaluate_fn: Any = None,
    **options: Any,
) -> Any:
    """Run a strategy over four nodes."""
    grid = InProcessGrid([{"partition-id": node} for node in range(4)], app)
    arrays = record() if initial is None else initial
    return kind(**options).start(grid, arrays, rounds, evaluate_fn=evaluate_fn)


def labels_of_half(context: Context) -> list[int]:
    """Return two labels for half of the nodes, and two others for all else."""
    first = 2 * (int(context.node_config["partition-id"]) % 2)
    return [first, first + 1] * 20


SEEDED: dict[str, Any] = {
    "clusters": 2,
    "reseeded": lambda seed: record(weight=np.full((2, 3), seed % 7, float)),
}


def choosing(
    name: str = "loss", mod: bool = True, after: Any = (), **metrics: Any
) -> ClientApp:
    """Return an app whose nodes choose the model that is nearest to their number.

    Mods ``after`` the choice see one model.
    """
    app = ClientApp()

    def evaluate(message: Message, context: Context) -> Message:
        gaps = message.content["arrays"][WEIGHT].numpy() - context.node_id
        found = {name: float(abs(gaps).mean()), "num-examples": 2, **metrics}
        return Message(RecordDict({"metrics": MetricRecord(found)}), reply_to=message)

    def train(message: Message, context: Context) -> Message:
        found = {"num-examples": context.node_id - 999}
        arrays = message.content["arrays"]
        content = RecordDict({"arrays": arrays, "metrics": MetricRecord(found)})
        return Message(content, reply_to=message)

    app.train(mods=[*[choose_by_loss(evaluate)] * mod, *after])(train)
    app.evaluate()(evaluate)
    return app


KINDS: dict[Any, dict[str, Any]] = {plain.IFCA: SEEDED, plain.FedDrift: {}}
