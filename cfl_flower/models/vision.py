"""torchvision's networks with the stem and the classifier that the images ask for."""

from __future__ import annotations

import math
from typing import Any

from torch import nn

from cfl_flower.models.base import Network, require_image, require_inputs
from cfl_flower.settings import require, settings

SMALL = 64
"""Images with fewer pixels than this on a side keep their resolution in the stem."""

SMALLEST = 9
"""Pixels that leave the last stage, 8 times smaller, more than one position.

BatchNorm fails on a single value per channel, which a batch of one would be.
"""


@settings("model")
class ResNet18:
    """ResNet-18 (He et al., 2016): 11,689,512 parameters on ImageNet.

    Images smaller than 64 pixels meet a 3x3 convolution without stride and no pooling
    in place of the 7x7 stem, as usual on CIFAR: 11,173,962 parameters there.
    """

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Build the network for images of ``shape``."""
        require_image("resnet18", shape, SMALLEST)
        network = _torchvision_models().resnet18(num_classes=classes)
        kernel, stride = (3, 1) if is_small(shape) else (7, 2)
        stem = nn.Conv2d(shape[0], 64, kernel, stride, kernel // 2, bias=False)
        nn.init.kaiming_normal_(stem.weight, mode="fan_out", nonlinearity="relu")
        network.conv1 = stem
        if is_small(shape):
            network.maxpool = nn.Identity()
        return _split(network, "fc")


@settings("model")
class ShuffleNetV2:
    """ShuffleNet v2 1.0x (Ma et al., 2018): 2,278,604 parameters on ImageNet.

    Images smaller than 64 pixels keep their resolution in the stem, as in `ResNet18`.
    """

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Build the network for images of ``shape``."""
        require_image("shufflenet_v2", shape, SMALLEST)
        network = _torchvision_models().shufflenet_v2_x1_0(num_classes=classes)
        stride = 1 if is_small(shape) else 2
        network.conv1[0] = nn.Conv2d(shape[0], 24, 3, stride, 1, bias=False)
        if is_small(shape):
            network.maxpool = nn.Identity()
        return _split(network, "fc")


@settings("model")
class VisionTransformer:
    """A vision transformer (Dosovitskiy et al., 2021).

    The defaults are ViT-B/16: 86,567,656 parameters on ImageNet at 224 pixels.
    """

    patch: int = 16
    """Height and width of a patch; must divide the image's."""
    layers: int = 12
    """Encoder layers, and attention heads in each."""
    heads: int = 12
    """Encoder layers, and attention heads in each."""
    width: int = 768
    """Width of a token, a multiple of `heads`, and of the hidden layers."""
    hidden: int = 3072
    """Width of a token, a multiple of `heads`, and of the hidden layers."""

    def __post_init__(self) -> None:
        for name in ("patch", "layers", "heads", "width", "hidden"):
            value = getattr(self, name)
            require(value >= 1, f"model.{name}", value, "an integer of at least 1")
        require(
            self.width % self.heads == 0,
            "model.width",
            self.width,
            f"a multiple of model.heads={self.heads}",
        )

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Build the network for square images of ``shape``."""
        square = len(shape) == 3 and shape[1] == shape[2]
        require_inputs(
            square, "vit_b_16", shape, "square images (channels, size, size)"
        )
        channels, size, _ = shape
        require(
            size % self.patch == 0,
            "model.patch",
            self.patch,
            f"a divisor of the image's {size} pixels",
        )
        network = _torchvision_models().VisionTransformer(
            size,
            self.patch,
            self.layers,
            self.heads,
            self.width,
            self.hidden,
            num_classes=classes,
        )
        stem = nn.Conv2d(channels, self.width, self.patch, self.patch)
        nn.init.trunc_normal_(stem.weight, std=math.sqrt(1 / stem.weight[0].numel()))
        network.conv_proj = stem
        nn.init.zeros_(network.conv_proj.bias)
        network.heads = network.heads.head
        return _split(network, "heads")


def is_small(shape: tuple[int, ...]) -> bool:
    """Say whether an image cannot afford to be made smaller in the stem."""
    return min(shape[1:]) < SMALL


def _torchvision_models() -> Any:
    # Seconds, which only the networks of torchvision shall cost.
    from cfl_flower.data.vision import models  # noqa: PLC0415

    return models


def _split(network: Any, name: str) -> Network:
    """Take the last layer out of a network; the rest is the extractor."""
    classifier = getattr(network, name)
    setattr(network, name, nn.Identity())
    return Network(network, classifier)
