"""The networks of the package: dense, convolutional, torchvision's, and recurrent.

The dense networks take the flattened input, whatever its shape. The convolutional ones
are those of FlexCFL (Duan et al., 2021), FedCCFA and CCFL. Where the papers' framework
pads a strided convolution on one side more than on the other, these pad both sides
alike; the outputs have the same size. The recurrent ones are FlexCFL's for texts.
torchvision's have the stem and the classifier that the images ask for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from cfl_flower.models.network import Network, require_image, require_inputs
from cfl_flower.settings import Count, require, settings


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


SMALL = 64
"""Images with fewer pixels than this on a side keep their resolution in the stem."""

Stem: TypeAlias = Literal["auto", "small", "imagenet"]
"""First layers for small images, as on ImageNet, or by the image's size."""

SMALLEST = 9
"""Pixels that leave the last stage, 8 times smaller, more than one position.

BatchNorm fails on a single value per channel, which a batch of one would be.
"""

SMALLEST_STEM = {"auto": SMALLEST, "small": SMALLEST, "imagenet": 4 * SMALLEST - 3}
"""The same for each stem; that of ImageNet leaves a quarter of the pixels."""


@settings("model")
class ResNet18:
    """ResNet-18 (He et al., 2016): 11,689,512 parameters on ImageNet.

    The small stem is a 3x3 convolution without stride and no pooling in place of the
    7x7 one, as usual on CIFAR: 11,173,962 parameters there.
    """

    stem: Stem = "auto"
    """The small one keeps the image's resolution; `auto` takes it below 64 pixels."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Build the network for images of ``shape``."""
        require_image("resnet18", shape, SMALLEST_STEM[self.stem])
        network = _torchvision_models().resnet18(num_classes=classes)
        kernel, stride = (3, 1) if _is_small(self.stem, shape) else (7, 2)
        stem = nn.Conv2d(shape[0], 64, kernel, stride, kernel // 2, bias=False)
        nn.init.kaiming_normal_(stem.weight, mode="fan_out", nonlinearity="relu")
        network.conv1 = stem
        return _without_pooling(network, stride)


@settings("model")
class ShuffleNetV2:
    """ShuffleNet v2 1.0x (Ma et al., 2018): 2,278,604 parameters on ImageNet.

    In the small stem images keep their resolution, as in `ResNet18`.
    """

    stem: Stem = "auto"
    """The small one keeps the image's resolution; `auto` takes it below 64 pixels."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Build the network for images of ``shape``."""
        require_image("shufflenet_v2", shape, SMALLEST_STEM[self.stem])
        network = _torchvision_models().shufflenet_v2_x1_0(num_classes=classes)
        stride = 1 if _is_small(self.stem, shape) else 2
        network.conv1[0] = nn.Conv2d(shape[0], 24, 3, stride, 1, bias=False)
        return _without_pooling(network, stride)


@settings("model")
class VisionTransformer:
    """A vision transformer (Dosovitskiy et al., 2021).

    The defaults are ViT-B/16: 86,567,656 parameters on ImageNet at 224 pixels.
    """

    patch: Count = 16
    """Height and width of a patch; must divide the image's."""
    layers: Count = 12
    """Encoder layers."""
    heads: Count = 12
    """Attention heads in each layer."""
    width: Count = 768
    """Width of a token, a multiple of `heads`."""
    hidden: Count = 3072
    """Width of the hidden layers."""

    def __post_init__(self) -> None:
        ok = self.width % self.heads == 0
        allowed = f"model.heads={self.heads}"
        require(ok, "model.width", self.width, f"a multiple of {allowed}")

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Build the network for square images of ``shape``."""
        square = len(shape) == 3 and shape[1] == shape[2]
        takes = "square images (channels, size, size)"
        require_inputs(square, "vit_b_16", shape, takes)
        channels, size, _ = shape
        allowed = f"a divisor of the image's {size} pixels"
        require(size % self.patch == 0, "model.patch", self.patch, allowed)
        sizes = size, self.patch, self.layers, self.heads, self.width, self.hidden
        network = _torchvision_models().VisionTransformer(*sizes, num_classes=classes)
        stem = nn.Conv2d(channels, self.width, self.patch, self.patch)
        nn.init.trunc_normal_(stem.weight, std=math.sqrt(1 / stem.weight[0].numel()))
        network.conv_proj = stem
        nn.init.zeros_(network.conv_proj.bias)
        network.heads = network.heads.head
        return _split(network, "heads")


def _torchvision_models() -> Any:
    # Seconds, which only the networks of torchvision shall cost.
    from cfl_flower.data.reading.vision import models  # noqa: PLC0415

    return models


def _is_small(stem: Stem, shape: tuple[int, ...]) -> bool:
    """Return whether images of a shape get the small stem."""
    return min(shape[1:]) < SMALL if stem == "auto" else stem == "small"


def _without_pooling(network: Any, stride: int) -> Network:
    """Drop the stem's pooling where its convolution has no stride."""
    if stride == 1:
        network.maxpool = nn.Identity()
    return _split(network, "fc")


def _split(network: Any, name: str) -> Network:
    """Take the last layer out of a network; the rest is the extractor."""
    classifier = getattr(network, name)
    setattr(network, name, nn.Identity())
    return Network(network, classifier)
