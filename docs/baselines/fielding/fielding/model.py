"""Multinomial logistic regression: how it is trained, and tested."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy


def make_net(seed: int) -> nn.Module:
    """Return a linear layer from 64 pixels to ten digits."""
    torch.manual_seed(seed)
    return nn.Linear(64, 10)


def train(net: nn.Module, x: Tensor, y: Tensor, epochs: int, rate: float) -> None:
    """Train a network by SGD, in batches of ten."""
    optimizer = torch.optim.SGD(net.parameters(), lr=rate)
    for _ in range(epochs):
        for rows in torch.randperm(len(y)).split(10):
            optimizer.zero_grad()
            cross_entropy(net(x[rows]), y[rows]).backward()
            optimizer.step()


@torch.no_grad()
def test(net: nn.Module, x: Tensor, y: Tensor) -> dict[str, float]:
    """Return the metrics of a test."""
    scores = net(x)
    return {
        "loss": float(cross_entropy(scores, y)),
        "accuracy": float((scores.argmax(1) == y).float().mean()),
        "num-examples": len(y),
    }
