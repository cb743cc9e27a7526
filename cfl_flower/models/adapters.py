"""Which of a network's parameters are trained, beside weights that a file gives.

What is not trained is frozen: it is neither sent nor stored, so that a cluster's model
is its adapter alone.
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import AfterValidator, Field
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import batch_norm
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.utils import parametrize

from cfl_flower.errors import refused
from cfl_flower.settings import Natural, Positive, require, settings

SHOWN = 12
"""Names that an error lists."""


def absolute(path: str) -> str:
    """Return a path that means the same in every process of a run."""
    return str(Path(path).expanduser().absolute())


@settings("model")
class Lora:
    """Low-rank adapters (Hu et al., 2022): W + scale B A, of which B and A are trained.

    A is drawn as in the paper's code, B is zero: a run starts with the given weights.
    """

    rank: Natural = 0
    """Rows of A and columns of B; 0 for no adapters."""
    targets: Annotated[list[str], Field(min_length=1)] = field(
        default_factory=lambda: ["*"]
    )
    """Patterns of the names of layers that get an adapter: linear ones, convolutions,
    and the queries, keys and values of torch's attention."""
    scale: Positive = 1.0
    """Factor of the product B A; alpha / rank in the paper."""


@settings("model")
class Adapted:
    """What may be set of every network beside its own settings."""

    weights: Annotated[str, AfterValidator(absolute)] | None = None
    """File of weights to start from, .safetensors or torch's, of which a device with a
    `data-dir` has its own there, by the same name. The classifier's are drawn; all
    others must be in it."""
    trainable: list[str] = field(default_factory=list)
    """Patterns of the names of parameters that are trained; [] for all, or, with
    adapters, these and the classifier."""
    lora: Lora = field(default_factory=Lora)
    network: Any = None
    """The settings of the network itself."""

    def for_device(self, data_dir: str) -> Adapted:
        """Return what a device builds: its weights are the file of this name there."""
        weights = self.weights and str(Path(data_dir, Path(self.weights).name))
        return replace(self, weights=weights)

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """Build the network for inputs of ``shape``, or raise `ConfigError`."""
        network: nn.Module = self.network.build(shape, classes)
        if self.weights and not next(network.parameters()).is_meta:
            load_weights(network, Path(self.weights))
        patterns = list(self.trainable)
        if self.lora.rank:
            add_adapters(network, self.lora)
            patterns = patterns or ["*.lora_?", "classifier.*"]
        if patterns:
            freeze_others(network, patterns)
        return network


class LowRank(nn.Module):
    """From a frozen weight, shape (m, ...), to the adapted one."""

    def __init__(self, weight: Tensor, settings: Lora) -> None:
        super().__init__()
        flat = weight.flatten(1)
        self.scale = settings.scale
        self.lora_a = nn.Parameter(torch.empty(settings.rank, flat.shape[1]))
        self.lora_b = nn.Parameter(torch.zeros(len(flat), settings.rank))
        nn.init.kaiming_uniform_(self.lora_a, math.sqrt(5))

    def forward(self, weight: Tensor) -> Tensor:
        """Return W + scale B A."""
        change = self.scale * (self.lora_b @ self.lora_a)
        return weight + change.view(weight.shape)


class FrozenNorm(nn.Module):
    """A BatchNorm whose mean and variance are as frozen as its weight and bias."""

    weight: Tensor
    bias: Tensor
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.eps = norm.eps
        for name in ("weight", "bias", "running_mean", "running_var"):
            tensor = nn.Parameter(getattr(norm, name).detach(), requires_grad=False)
            self.register_parameter(name, tensor)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise by the running statistics, in training as in a test."""
        mean = self.running_mean
        variance = self.running_var
        return batch_norm(x, mean, variance, self.weight, self.bias, eps=self.eps)


def load_weights(network: nn.Module, path: Path) -> None:
    """Load weights by their names, with or without the prefix ``extractor.``.

    A classifier stays as it was drawn: models of several clusters, which methods such
    as IFCA tell apart by their losses, would else start as one. Raises `ConfigError`.
    """
    require(path.is_file(), "model.weights", path, "a file that is there")
    remedy = "save a state_dict again, as .safetensors or by torch.save"
    with refused(f"model.weights={path} cannot be read", remedy):
        if path.suffix == ".safetensors":
            given = load_file(path)
        else:
            given = torch.load(path, map_location="cpu", weights_only=True)
        found = {name: each for name, each in given.items() if torch.is_tensor(each)}
    loaded = {}
    for name, tensor in network.state_dict().items():
        floats = torch.is_tensor(tensor) and tensor.is_floating_point()
        if name.startswith("classifier.") or not floats:
            continue
        short = name if name in found else name.removeprefix("extractor.")
        allowed = f"a file with {name} of shape {(*tensor.shape,)}, or another model"
        ok = short in found and found[short].shape == tensor.shape
        require(ok, "model.weights", path, allowed)
        loaded[name] = found[short]
    # What `state_dict` returns may be copies.
    network.load_state_dict(loaded, strict=False)


def add_adapters(network: nn.Module, settings: Lora) -> None:
    """Add low-rank adapters to the layers that are named, but for the classifier."""
    layers: dict[str, tuple[nn.Module, str]] = {}
    for name, layer in network.named_modules():
        if isinstance(layer, nn.Linear | _ConvNd) and name != "classifier":
            layers[name] = layer, "weight"
        elif isinstance(layer, nn.MultiheadAttention):
            layers[name] = layer, "in_proj_weight"
    allowed = "0 for a network without a layer below its classifier"
    require(bool(layers), "model.lora.rank", settings.rank, allowed)
    for name in matching(settings.targets, list(layers), "model.lora.targets"):
        layer, weight = layers[name]
        low_rank = LowRank(getattr(layer, weight), settings)
        parametrize.register_parametrization(layer, weight, low_rank)


def freeze_others(network: nn.Module, patterns: list[str]) -> None:
    """Freeze all parameters but those that are named, and BatchNorm with them."""
    named = {
        # As before `add_adapters`.
        name.replace("parametrizations.", "").replace(".original", ""): parameter
        for name, parameter in network.named_parameters()
    }
    if not hasattr(network, "classifier"):
        patterns = [each for each in patterns if each != "classifier.*"]
    trained = matching(patterns, list(named), "model.trainable")
    for name, parameter in named.items():
        parameter.requires_grad_(name in trained)
    for layer in list(network.modules()):
        for name, inner in layer.named_children():
            tensors = list(inner.parameters())
            known = isinstance(inner, _BatchNorm) and inner.running_mean is not None
            if known and tensors and not any(each.requires_grad for each in tensors):
                setattr(layer, name, FrozenNorm(inner))


def matching(patterns: list[str], names: list[str], key: str) -> list[str]:
    """Return the names that a pattern matches; raise for one that matches none."""
    found: list[str] = []
    rest = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    allowed = f"patterns of {', '.join(names[:SHOWN])}{rest}"
    for pattern in patterns:
        matched = [name for name in names if fnmatchcase(name, pattern)]
        require(bool(matched), key, pattern, allowed)
        found += matched
    return [name for name in names if name in found]


def merged(network: nn.Module) -> nn.Module:
    """Return a copy of a network with its adapters added to the weights themselves."""
    network = deepcopy(network)
    for layer in network.modules():
        if parametrize.is_parametrized(layer):
            adapted = [
                (name, own)
                for name, own in layer.parametrizations.items()  # type: ignore
                if any(isinstance(each, LowRank) for each in own)
            ]
            # torch takes the weight out of the layer's class, which the copy shares.
            kind = type(layer)
            layer.__class__ = type(kind.__name__, kind.__bases__, dict(vars(kind)))
            for name, own in adapted:
                if hasattr(own, "original"):
                    # Another layer may share it, which has an adapter of its own.
                    own.original = nn.Parameter(own.original.detach().clone())
                parametrize.remove_parametrizations(layer, name)
    return network
