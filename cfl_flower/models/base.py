"""What every network has in common."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor, nn

from cfl_flower.errors import ConfigError


class ModelSettings(Protocol):
    """Settings that know how to build their network."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Build the network for inputs of ``shape``, or raise `ConfigError`."""


class Network(nn.Module):
    """An extractor of representations and a linear classifier on top of them.

    Attributes
    ----------
    extractor : torch.nn.Module
        From inputs, shape (n, ...), to representations, shape (n, width).
    classifier : torch.nn.Linear
        From representations to logits, shape (n, classes).
    """

    def __init__(self, extractor: nn.Module, classifier: nn.Linear) -> None:
        super().__init__()
        self.extractor = extractor
        self.classifier = classifier

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, shape (n, classes)."""
        logits: Tensor = self.classifier(self.extractor(x))
        return logits


def require_inputs(fits: bool, model: str, shape: tuple[int, ...], takes: str) -> None:
    """Raise `ConfigError` for a network that cannot take the dataset's inputs."""
    if not fits:
        raise ConfigError(
            f"model={model} does not fit inputs of shape {shape}; it takes {takes}; "
            "choose another dataset, or model=mlp"
        )


def require_image(model: str, shape: tuple[int, ...], smallest: int) -> None:
    """Require (channels, height, width) of at least ``smallest`` pixels on a side."""
    takes = f"(channels, height, width) of at least {smallest}x{smallest} pixels"
    require_inputs(len(shape) == 3 and min(shape[1:]) >= smallest, model, shape, takes)
