"""Apps in the shape of Flower's quickstarts, on the digits, as users have them.

Nodes 0 and 1 have the digits below 5, nodes 2 and 3 the others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

from cfl_flower.mods import choose_by_loss, fine_tune, label_histogram, numpy_client


def load(context: Context) -> tuple[np.ndarray, np.ndarray]:
    """Return the samples of a node: inputs, (n, 64), and labels, (n,)."""
    x, y = load_digits(return_X_y=True)
    node = int(context.node_config["partition-id"])
    own = np.flatnonzero((y >= 5) == (node >= 2))[node % 2 :: 2]
    return (x[own] / 16).astype(np.float32), y[own]


def reply(message: Message, arrays: ArrayRecord | None, **metrics: float) -> Message:
    """Return an answer."""
    content = RecordDict({"metrics": MetricRecord(metrics)})
    if arrays is not None:
        content["arrays"] = arrays
    return Message(content, reply_to=message)


# PyTorch ------------------------------------------------------------------------------


class Net(torch.nn.Sequential):
    """A network whose state dict has a counter."""

    def __init__(self) -> None:
        super().__init__(
            torch.nn.Linear(64, 16),
            torch.nn.BatchNorm1d(16),
            torch.nn.ReLU(),
            torch.nn.Linear(16, 10),
        )


pytorch = ClientApp(mods=[label_histogram(lambda context: load(context)[1], 10)])


@pytorch.train()
def train_net(message: Message, context: Context) -> Message:
    """Train a network."""
    net = Net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = map(torch.from_numpy, load(context))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    for _ in range(20):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    return reply(message, ArrayRecord(net.state_dict()), **{"num-examples": len(y)})


@pytorch.evaluate()
def test_net(message: Message, context: Context) -> Message:
    """Test a network."""
    net = Net().eval()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = map(torch.from_numpy, load(context))
    loss = float(torch.nn.functional.cross_entropy(net(x), y).detach())
    accuracy = float((net(x).argmax(1) == y).float().mean())
    found = {"loss": loss, "accuracy": accuracy, "num-examples": len(y)}
    return reply(message, None, **found)


def test_worse(message: Message, context: Context) -> Message:
    """Test a network, whose loss rises from round to round, as after drifts."""
    found = test_net(message, context)
    found.content["metrics"]["loss"] += message.content["config"]["server-round"]
    return found


choosing = ClientApp()
choosing.train(mods=[choose_by_loss(test_worse)])(train_net)
choosing.evaluate(mods=[fine_tune(train_net)])(test_net)


# scikit-learn -------------------------------------------------------------------------

sklearn = ClientApp(mods=[label_histogram(lambda context: load(context)[1], 10)])


def classifier(message: Message) -> SGDClassifier:
    """Return a classifier with the weights that were received."""
    model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.1)
    model.classes_ = np.arange(10)
    model.coef_, model.intercept_ = message.content["arrays"].to_numpy_ndarrays()
    return model


def first_weights() -> ArrayRecord:
    """Return the weights that training starts from."""
    return ArrayRecord([np.zeros((10, 64)), np.zeros(10)])


@sklearn.train()
def train_classifier(message: Message, context: Context) -> Message:
    """Train a classifier."""
    x, y = load(context)
    model = classifier(message)
    model.fit(
        x, y, coef_init=_of(model.coef_, y), intercept_init=_of(model.intercept_, y)
    )
    coefficients, intercepts = message.content["arrays"].to_numpy_ndarrays()
    labels = model.classes_
    coefficients[labels] = model.coef_
    intercepts[labels] = model.intercept_
    arrays = ArrayRecord([coefficients, intercepts])
    return reply(message, arrays, **{"num-examples": len(y)})


def _of(weights: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return weights[np.unique(labels)]


@sklearn.evaluate()
def test_classifier(message: Message, context: Context) -> Message:
    """Test a classifier."""
    x, y = load(context)
    accuracy = float(classifier(message).score(x, y))
    found = {"accuracy": accuracy, "num-examples": len(y)}
    return reply(message, None, **found)


# NumPyClient --------------------------------------------------------------------------


class DigitsClient(NumPyClient):
    """A client as apps of `client_fn` have it; it knows no names of arrays."""

    def __init__(self, context: Context) -> None:
        self.x, self.y = map(torch.from_numpy, load(context))

    def net_of(self, parameters: list[np.ndarray]) -> Net:
        """Return the network with the arrays that came."""
        net = Net()
        values = map(torch.from_numpy, parameters)
        net.load_state_dict(dict(zip(net.state_dict(), values, strict=True)))
        return net

    def fit(self, parameters: Any, config: Any) -> Any:
        """Train a network."""
        net = self.net_of(parameters)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
        for _ in range(20):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(self.x), self.y).backward()
            optimizer.step()
        arrays = [each.numpy() for each in net.state_dict().values()]
        metrics = {"steps": 20, "converged": False, "site": "a word is no metric"}
        return arrays, len(self.y), metrics

    def evaluate(self, parameters: Any, config: Any) -> Any:
        """Test a network."""
        outputs = self.net_of(parameters).eval()(self.x).detach()
        loss = float(torch.nn.functional.cross_entropy(outputs, self.y))
        accuracy = float((outputs.argmax(1) == self.y).float().mean())
        return loss, len(self.y), {"accuracy": accuracy}


numpy = ClientApp(
    client_fn=lambda context: DigitsClient(context).to_client(),
    mods=[label_histogram(lambda context: load(context)[1], 10), numpy_client],
)
