"""The convolutional networks of FlexCFL, FedCCFA and CCFL, and LeNet-5.

Where the papers' framework pads a strided convolution on one side more than on the
other, these pad both sides alike; the outputs have the same size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from cfl_flower.models.network import Network, require_image
from cfl_flower.settings import require, settings


class Convolutional(nn.Sequential):
    """Layers in a row, the first of them a convolution.

    On a CPU its images lie in memory channels last, whatever layout they come in: that
    takes a sixth to a third off a training step and half off a test.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of the last layer, from images (n, channels, h, w)."""
        if x.device.type == "cpu":
            # contiguous(memory_format=channels_last) leaves images of one channel as
            # they are, because both layouts put their numbers in the same order; the
            # convolution goes by the strides, which this sets without a move then.
            rows = x.permute(0, 2, 3, 1)
            x = rows.flatten().view(rows.shape).permute(0, 3, 1, 2)
        return super().forward(x)  # type: ignore[no-untyped-call]


def _stages(channels: Sequence[int], kernel: int, padding: int = 0) -> list[nn.Module]:
    """Return a convolution from each number of channels to the next, with pooling."""
    # The same numbers and gradients as in the papers' order, ReLU first, which takes it
    # of four times as many: a tenth of a training step.
    return [
        layer
        for one, two in pairwise(channels)
        for layer in (
            nn.Conv2d(one, two, kernel, padding=padding),
            nn.MaxPool2d(2),
            nn.ReLU(),
        )
    ]


def _with_hidden_layer(
    stages: Sequence[nn.Module],
    hidden: int,
    activation: nn.Module,
    shape: tuple[int, ...],
    classes: int,
) -> Network:
    """Put a dense layer and the classifier on top of convolutions."""
    flat = nn.Sequential(*stages, nn.Flatten())
    dense = nn.Linear(_output_width(flat, shape), hidden)
    extractor = Convolutional(*flat, dense, activation)
    return Network(extractor, nn.Linear(hidden, classes))


@settings("model")
class FlexCflMnistCnn:
    """FlexCFL's network for MNIST: 50,186 parameters there."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Build the network for images of ``shape``."""
        require_image("flexcfl_cnn_mnist", shape, 4)
        stages = _stages((shape[0], 32, 64), 3, padding=1)
        extractor = Convolutional(*stages, nn.Flatten(), nn.Dropout(0.5))
        return Network(extractor, nn.Linear(_output_width(extractor, shape), classes))


@settings("model")
class FlexCflFemnistCnn:
    """FlexCFL's network for FEMNIST: 325,578 parameters with 10 classes."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Build the network for images of ``shape``."""
        require_image("flexcfl_cnn_femnist", shape, 13)
        stages = [*self._stage(shape[0], 32), *self._stage(32, 64)]
        return _with_hidden_layer(stages, 128, nn.ReLU(), shape, classes)

    @staticmethod
    def _stage(inputs: int, outputs: int) -> list[nn.Module]:
        return [
            nn.Conv2d(inputs, outputs, 3),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Dropout(0.4),
        ]


@settings("model")
class FlexCflFashionCnn:
    """FlexCFL's network for Fashion-MNIST: 3,274,634 parameters there."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Build the network for images of ``shape``."""
        require_image("flexcfl_cnn_fashion", shape, 4)
        stages = _stages((shape[0], 32, 64), 5, padding=2)
        return _with_hidden_layer(stages, 1024, nn.ReLU(), shape, classes)


@settings("model")
class LeNet5:
    """LeNet-5 with average pooling and ReLU, as FLUX has it.

    61,706 parameters on MNIST, 62,006 there on three channels.
    """

    divided: Literal["last", "convolutions"] = "last"
    """Representations are what the last layer takes, or what the convolutions give, as
    FLUX describes clients by; then no method can train the classifier by itself."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Build the network for images of ``shape``."""
        require_image("lenet5", shape, 12)
        extractor = Convolutional(
            nn.Conv2d(shape[0], 6, 5, padding=2),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Flatten(),
        )
        width = _output_width(extractor, shape)
        dense = [nn.Linear(width, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU()]
        last = nn.Linear(84, classes)
        if self.divided == "last":
            return Network(extractor.extend(dense), last)
        return Network(extractor, nn.Sequential(*dense, last))


@settings("model")
class FedCcfaCnn:
    """FedCCFA's networks: 117,066 parameters on Fashion-MNIST, 107,690 on CIFAR-10."""

    blocks: Literal[2, 3] = 2
    """Blocks of convolution, LeakyReLU and pooling: 2 in the paper's network for
    Fashion-MNIST, 3 in the one for CIFAR."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Build the network for images of ``shape``."""
        name = f"fedccfa_cnn of {self.blocks} blocks"
        require_image(name, shape, 4 + 4 * self.blocks)
        convolutions = (
            nn.Conv2d(shape[0], 16, 5),
            nn.Conv2d(16, 32, 5, padding=1),
            nn.Conv2d(32, 64, 3, padding=1),
        )
        # The maximum first, as in `_stages`: a LeakyReLU rises everywhere.
        stages = [
            layer
            for convolution in convolutions[: self.blocks]
            for layer in (convolution, nn.MaxPool2d(2), nn.LeakyReLU())
        ]
        return _with_hidden_layer(stages, 128, nn.LeakyReLU(), shape, classes)


@settings("model")
class CcflCnn:
    """CCFL's network for Fashion-MNIST: 582,026 parameters with the default channels.

    The paper does not tell the channels.
    """

    channels: list[int] = field(default_factory=lambda: [32, 64])
    """Channels of the two convolutions."""

    def __post_init__(self) -> None:
        ok = len(self.channels) == 2 and min(self.channels) >= 1
        require(ok, "model.channels", self.channels, "two positive numbers")

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Build the network for images of ``shape``."""
        require_image("ccfl_cnn", shape, 16)
        stages = _stages((shape[0], *self.channels), 5)
        return _with_hidden_layer(stages, 512, nn.ReLU(), shape, classes)


@torch.no_grad()
def _output_width(layers: nn.Sequential, shape: tuple[int, ...]) -> int:
    """Return how many numbers the layers make of one input, by trying one."""
    # Dropout would draw from torch's generator.
    width = layers.eval()(torch.zeros(1, *shape)).shape[1]
    layers.train()
    return int(width)
