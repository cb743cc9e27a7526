"""The dense networks, and FlexCFL's recurrent ones for texts.

The dense networks take the flattened input, whatever its shape. Those of images are in
`convolutional` and `torchvision_networks`.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn

from cfl_flower.models.network import Network, require_inputs
from cfl_flower.settings import Count, settings


class SoftmaxRegression(Network):
    """One linear layer on the flattened input."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__(nn.Flatten(), nn.Linear(inputs, classes))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, shape (n, classes)."""
        # Calling the extractor would cost a tenth of this network's time.
        return self.classifier(x.flatten(1))


@settings("model")
class Mclr:
    """Multinomial logistic regression: 7,850 parameters on MNIST, 650 on digits."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Build the network for inputs of ``shape``."""
        return SoftmaxRegression(math.prod(shape), classes)


@settings("model")
class Mlp:
    """A perceptron with one hidden ReLU layer.

    On MNIST 101,770 parameters at 128 and 407,050 at 512 (FlexCFL, Duan et al., 2021),
    1,628,170 at 2048 (StoCFL, Zeng et al., 2023).
    """

    hidden: Count = 128
    """Width of the hidden layer."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Build the network for inputs of ``shape``."""
        dense = nn.Linear(math.prod(shape), self.hidden)
        extractor = nn.Sequential(nn.Flatten(), dense, nn.ReLU())
        return Network(extractor, nn.Linear(self.hidden, classes))


CELLS: dict[str, Any] = {"gru": nn.GRU, "lstm": nn.LSTM}


class RecurrentExtractor(nn.Module):
    """Two bidirectional recurrent layers, 64 and 32 wide, and a ReLU layer of 64.

    The second layer passes its last state on: that of the forward direction after the
    last token and that of the backward direction after the first.
    """

    def __init__(self, cell: Any, dimensions: int) -> None:
        super().__init__()
        self.first = cell(dimensions, 64, batch_first=True, bidirectional=True)
        self.second = cell(128, 32, batch_first=True, bidirectional=True)
        self.dense = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.5))

    def forward(self, x: Tensor) -> Tensor:
        """Return representations, shape (n, 64), of (n, tokens, dimensions)."""
        states, _ = self.second(self.first(x)[0])
        # Forwards the last state comes last, backwards it comes first.
        last = torch.cat((states[:, -1, :32], states[:, 0, 32:]), 1)
        return self.dense(last)


@settings("model")
class Recurrent:
    """A bidirectional recurrent network on word vectors, for Sent140.

    Inputs are float vectors, shape (tokens, dimensions), and not token numbers: the
    word embedding is fixed, belongs to the dataset, and is not among the parameters. At
    25 tokens of 300 dimensions and 2 classes, GRU has 175,938 parameters and LSTM
    233,154; the latter are 232,386 in the paper's framework, whose LSTM lacks torch's
    second bias vector.
    """

    cell: Literal["gru", "lstm"] = "gru"
    """``gru`` or ``lstm``."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Build the network for sequences of ``shape`` (tokens, dimensions)."""
        require_inputs(len(shape) == 2, self.cell, shape, "(tokens, dimensions)")
        extractor = RecurrentExtractor(CELLS[self.cell], shape[1])
        return Network(extractor, nn.Linear(64, classes))
