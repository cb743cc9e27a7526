"""The small convolutional networks of FlexCFL (Duan et al., 2021), FedCCFA and CCFL.

Where the papers' framework pads a strided convolution on one side more than on the
other, these pad both sides alike; the outputs have the same size.
"""

from __future__ import annotations

from dataclasses import field
from typing import Literal

import torch
from torch import Tensor, nn

from cfl_flower.models.base import Network, require_image
from cfl_flower.settings import require, settings


class Convolutional(nn.Sequential):
    """Layers in a row, the first of them a convolution.

    On a CPU its images lie in memory channels last, whatever layout they come in: that
    takes a sixth to a third off a training step and half off a test.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of the last layer, from images (n, channels, h, w)."""
        if x.device.type == "cpu":
            x = _channels_last(x)
        outputs: Tensor = super().forward(x)  # type: ignore[no-untyped-call]
        return outputs


def _channels_last(x: Tensor) -> Tensor:
    # contiguous(memory_format=channels_last) leaves images of one channel as they are,
    # because both layouts put their numbers in the same order; the convolution goes by
    # the strides, which this sets without moving anything then.
    rows = x.permute(0, 2, 3, 1)
    return rows.flatten().view(rows.shape).permute(0, 3, 1, 2)


def _two_stages(inputs: int, kernel: int) -> list[nn.Module]:
    """Return two convolutions that keep the size, each with pooling and ReLU."""
    return [
        nn.Conv2d(inputs, 32, kernel, padding=kernel // 2),
        *_pooled_relu(),
        nn.Conv2d(32, 64, kernel, padding=kernel // 2),
        *_pooled_relu(),
        nn.Flatten(),
    ]


def _pooled_relu() -> list[nn.Module]:
    # The same numbers and gradients as in the papers' order, ReLU first, which takes it
    # of four times as many: a tenth of a training step.
    return [nn.MaxPool2d(2), nn.ReLU()]


@settings("model")
class FlexCflMnistCnn:
    """FlexCFL's network for MNIST: 50,186 parameters there."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Build the network for images of ``shape``."""
        require_image("flexcfl_cnn_mnist", shape, 4)
        extractor = Convolutional(*_two_stages(shape[0], 3), nn.Dropout(0.5))
        return Network(extractor, nn.Linear(output_width(extractor, shape), classes))


@settings("model")
class FlexCflFemnistCnn:
    """FlexCFL's network for FEMNIST: 325,578 parameters with 10 classes."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Build the network for images of ``shape``."""
        require_image("flexcfl_cnn_femnist", shape, 13)
        stages = nn.Sequential(
            *self._stage(shape[0], 32), *self._stage(32, 64), nn.Flatten()
        )
        extractor = Convolutional(
            *stages, nn.Linear(output_width(stages, shape), 128), nn.ReLU()
        )
        return Network(extractor, nn.Linear(128, classes))

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
        stages = nn.Sequential(*_two_stages(shape[0], 5))
        extractor = Convolutional(
            *stages, nn.Linear(output_width(stages, shape), 1024), nn.ReLU()
        )
        return Network(extractor, nn.Linear(1024, classes))


@settings("model")
class FedCcfaCnn:
    """FedCCFA's networks: 117,066 parameters on Fashion-MNIST, 107,690 on CIFAR-10."""

    blocks: Literal[2, 3] = 2
    """Blocks of convolution, LeakyReLU and pooling: 2 in the paper's network for
    Fashion-MNIST, 3 in the one for CIFAR."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Build the network for images of ``shape``."""
        require_image(
            f"fedccfa_cnn of {self.blocks} blocks", shape, 4 + 4 * self.blocks
        )
        convolutions = (
            nn.Conv2d(shape[0], 16, 5),
            nn.Conv2d(16, 32, 5, padding=1),
            nn.Conv2d(32, 64, 3, padding=1),
        )
        stages = nn.Sequential()
        for convolution in convolutions[: self.blocks]:
            stages.extend([convolution, nn.LeakyReLU(), nn.MaxPool2d(2)])
        stages.append(nn.Flatten())
        extractor = Convolutional(
            *stages, nn.Linear(output_width(stages, shape), 128), nn.LeakyReLU()
        )
        return Network(extractor, nn.Linear(128, classes))


@settings("model")
class CcflCnn:
    """CCFL's network for Fashion-MNIST: 582,026 parameters with the default channels.

    The paper does not tell the channels.
    """

    channels: list[int] = field(default_factory=lambda: [32, 64])
    """Of the two convolutions."""

    def __post_init__(self) -> None:
        ok = len(self.channels) == 2 and min(self.channels) >= 1
        require(ok, "model.channels", self.channels, "two positive numbers")

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Build the network for images of ``shape``."""
        require_image("ccfl_cnn", shape, 16)
        stages, inputs = nn.Sequential(), shape[0]
        for outputs in self.channels:
            stages.extend([nn.Conv2d(inputs, outputs, 5), *_pooled_relu()])
            inputs = outputs
        stages.append(nn.Flatten())
        width = output_width(stages, shape)
        extractor = Convolutional(*stages, nn.Linear(width, 512), nn.ReLU())
        return Network(extractor, nn.Linear(512, classes))


@torch.no_grad()
def output_width(layers: nn.Sequential, shape: tuple[int, ...]) -> int:
    """Return how many numbers the layers make of one input, by trying one."""
    # Dropout would draw from torch's generator.
    width = layers.eval()(torch.zeros(1, *shape)).shape[1]
    layers.train()
    return int(width)
