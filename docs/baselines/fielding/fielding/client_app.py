"""The ClientApp: any that trains and tests, with the mod that Fielding asks for."""

from __future__ import annotations

import torch
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from torch import Tensor, nn

from cfl_flower.mods import choose_by_loss, label_histogram
from fielding import dataset, model


def data_of(context: Context, server_round: int, part: str) -> tuple[Tensor, Tensor]:
    """Return what a node has in a round, to train or to test on."""
    config = context.run_config
    drifts = [int(each) for each in str(config["drift-rounds"]).split(",") if each]
    period = dataset.period_of(server_round, drifts)
    client = int(context.node_config["partition-id"])
    return dataset.load(client, period, int(config["seed"]), part)


def labels(context: Context) -> list[int]:
    """Return the labels that the node has now: after a test, those of the next round.

    Algorithm 1, line 4: a client whose data drifted says so before it trains on them.
    """
    upcoming = int(context.state.get("clock", ConfigRecord({"next": 1}))["next"])
    return data_of(context, upcoming, "train")[1].tolist()


def received(message: Message) -> tuple[nn.Module, int]:
    """Return the network that came, and the round."""
    net = model.make_net(0)
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    return net, int(message.content["config"]["server-round"])


def measure(message: Message, context: Context) -> Message:
    """Test a network on what the node trains on, by which IFCA and FedDrift choose."""
    net, server_round = received(message)
    found = model.test(net, *data_of(context, server_round, "train"))
    return Message(RecordDict({"metrics": MetricRecord(found)}), reply_to=message)


def version(context: Context) -> str:
    """Return what changes with a node's data, for FedDrift."""
    return str(labels(context))


app = ClientApp(mods=[label_histogram(labels, classes=10)])


@app.train(mods=[choose_by_loss(measure, version=version)])
def train(message: Message, context: Context) -> Message:
    """Train the network that was received."""
    net, server_round = received(message)
    x, y = data_of(context, server_round, "train")
    config = context.run_config
    torch.manual_seed(int(config["seed"]) + server_round)
    model.train(net, x, y, int(config["local-epochs"]), float(config["learning-rate"]))
    content = RecordDict(
        {
            "arrays": ArrayRecord(net.state_dict()),
            "metrics": MetricRecord({"num-examples": len(y)}),
        }
    )
    return Message(content, reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Test the network that was received."""
    net, server_round = received(message)
    context.state["clock"] = ConfigRecord({"next": server_round + 1})
    found = model.test(net, *data_of(context, server_round, "test"))
    return Message(RecordDict({"metrics": MetricRecord(found)}), reply_to=message)
