"""A run's network: its two parts, and how it is built."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from cfl_flower.errors import ConfigError
from cfl_flower.models.flat import FlatModel
from cfl_flower.models.own_state import example_batch, needs_observing, observe
from cfl_flower.seeding import torch_seed


class ModelSettings(Protocol):
    """Settings that know how to build their network."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Build the network.

        Parameters
        ----------
        shape : tuple of int
            That of one input.
        classes : int
            The number of labels.

        Returns
        -------
        torch.nn.Module
            From inputs, (n, *shape), to logits, (n, classes).

        Raises
        ------
        ConfigError
            If it cannot take such inputs.
        """


class Network(nn.Module):
    """An extractor of representations and a classifier, mostly linear, on top of them.

    Attributes
    ----------
    extractor : torch.nn.Module
        From inputs, shape (n, ...), to representations, shape (n, width).
    classifier : torch.nn.Module
        From representations to logits, shape (n, classes).
    """

    def __init__(self, extractor: nn.Module, classifier: nn.Module) -> None:
        super().__init__()
        self.extractor = extractor
        self.classifier = classifier

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, shape (n, classes)."""
        return self.classifier(self.extractor(x))


def require_inputs(fits: bool, model: str, shape: tuple[int, ...], takes: str) -> None:
    """Raise `ConfigError` for a network that cannot take the dataset's inputs."""
    if not fits:
        fault = f"model={model} does not fit inputs of shape {shape}; it takes {takes}"
        raise ConfigError(f"{fault}; choose another dataset, or model=mlp")


def require_image(model: str, shape: tuple[int, ...], smallest: int) -> None:
    """Require (channels, height, width) of at least ``smallest`` pixels on a side."""
    takes = f"(channels, height, width) of at least {smallest}x{smallest} pixels"
    require_inputs(len(shape) == 3 and min(shape[1:]) >= smallest, model, shape, takes)


def build_network(
    settings: ModelSettings, shape: tuple[int, ...], classes: int, seed: int
) -> nn.Module:
    """Build a run's network, with its initial weights and its frozen parameters.

    They follow from the run's seed, so that frozen parameters need not be sent: every
    process of the run has them. Torch's own generator is left alone.

    Parameters
    ----------
    settings : ModelSettings
        What builds it.
    shape : tuple of int
        That of one input.
    classes : int
        The number of labels.
    seed : int
        The run's.

    Returns
    -------
    torch.nn.Module
        In training mode.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(seed, "initial-model"))
        network = settings.build(shape, classes)
        if any(map(is_lazy, [*network.parameters(), *network.buffers()])):
            # Its layers learn their shapes from the first inputs.
            with torch.no_grad():
                network.eval()(example_batch(shape))
    # An author's own `train` may keep some layers in evaluation mode, from the start.
    return network.train()


def build_model(
    settings: ModelSettings,
    shape: tuple[int, ...],
    classes: int,
    seed: int,
    device: torch.device | str = "cpu",
) -> FlatModel:
    """Build a run's network as a flat model.

    Parameters
    ----------
    settings, shape, classes, seed
        Those of `build_network`.
    device : torch.device or str
        Where its tensors lie.

    Returns
    -------
    FlatModel
        With the run's initial weights.
    """
    network = build_network(settings, shape, classes, seed)
    observed = None
    if needs_observing(network):
        # A twin, since it is of no use afterwards.
        twin = build_network(settings, shape, classes, seed)
        with torch.random.fork_rng(devices=[]):
            observed = observe(twin, shape)
    return FlatModel(network, device, observed=observed)


def model_of(config: Any, seed: int | None = None) -> FlatModel:
    """Return the network of a run, by its settings (`RunConfig`), as it begins.

    With another ``seed`` it has other weights.
    """
    dataset = config.dataset
    seed = config.seed if seed is None else seed
    return build_model(config.model, dataset.shape, dataset.classes, seed)
