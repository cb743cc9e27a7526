"""torchvision's networks, with the stem and the classifier that the images ask for."""

from __future__ import annotations

import math
from typing import Any, Literal, TypeAlias

from torch import nn

from cfl_flower.models.network import Network, require_image, require_inputs
from cfl_flower.settings import Count, require, settings

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
        allowed = f"a multiple of model.heads={self.heads}"
        require(ok, "model.width", self.width, allowed)

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
