"""Networks on the flattened input, whatever its shape."""

from __future__ import annotations

import math

from torch import Tensor, nn

from cfl_flower.models.base import Network
from cfl_flower.settings import Count, settings


class SoftmaxRegression(Network):
    """One linear layer on the flattened input."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__(nn.Flatten(), nn.Linear(inputs, classes))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, shape (n, classes)."""
        # Calling the extractor would cost a tenth of this network's time.
        logits: Tensor = self.classifier(x.flatten(1))
        return logits


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
